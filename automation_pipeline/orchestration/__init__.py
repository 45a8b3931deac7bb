"""Dagster helpers that are not definitions: whatever lies under `defs` is imported as one."""
