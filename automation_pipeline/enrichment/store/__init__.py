"""Queries of enrichment."""
