"""Queries of audits, each named after the question it answers."""
