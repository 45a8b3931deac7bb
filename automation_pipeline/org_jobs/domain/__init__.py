"""Pure decisions of organisations' jobs."""
