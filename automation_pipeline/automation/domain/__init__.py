"""Decisions and values of automations; nothing here reads a clock, a database or a network."""
