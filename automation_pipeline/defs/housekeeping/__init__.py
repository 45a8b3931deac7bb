"""Housekeeping in Dagster: the job that takes away what is older than it is kept, every night."""
