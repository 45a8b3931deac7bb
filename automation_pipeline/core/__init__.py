"""Mechanisms that need no database: errors, retries, scheduling, state machines, settings, masking."""
