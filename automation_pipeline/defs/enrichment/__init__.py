"""Enrichment in Dagster: the job that asks the registers, the sweep, and the companies as an
asset."""
