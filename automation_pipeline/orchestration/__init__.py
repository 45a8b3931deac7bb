"""Dagster helpers that are not definitions: Dagster imports everything under `defs` as
definitions."""
