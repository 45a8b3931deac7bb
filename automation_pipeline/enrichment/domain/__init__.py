"""Pure decisions of enrichment."""
