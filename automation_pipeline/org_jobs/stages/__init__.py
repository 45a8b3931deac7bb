"""Verbs of organisations' jobs."""
