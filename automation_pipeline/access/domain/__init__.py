"""Pure decisions of access."""
