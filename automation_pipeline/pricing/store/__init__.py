"""Queries of pricing: rules, runs, targets, shops and what came after."""
