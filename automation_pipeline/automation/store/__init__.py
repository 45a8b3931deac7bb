"""Queries of automations: schedules, runs and their ledgers."""
