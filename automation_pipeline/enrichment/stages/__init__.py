"""Verbs of enrichment."""
