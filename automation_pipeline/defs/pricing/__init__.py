"""Pricing in Dagster: the jobs that work on runs of rules and check their prices, what starts them,
and the day."""
