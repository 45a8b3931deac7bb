"""Queries of organisations' jobs; each is bound to the organisations that the caller reaches."""
