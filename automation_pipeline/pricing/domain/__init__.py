"""Decisions and values of pricing; nothing here reads a clock, a database or a network."""
