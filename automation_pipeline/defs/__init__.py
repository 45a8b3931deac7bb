"""Dagster definitions only: Dagster imports every module of this package at load."""
