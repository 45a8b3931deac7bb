"""Queries of access, each named after the question it answers."""
