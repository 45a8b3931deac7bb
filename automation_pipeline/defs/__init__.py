"""Dagster definitions and nothing else: everything in here is imported at load."""
