"""The one door: filed requests become runs."""
