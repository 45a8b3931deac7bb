"""Adapters that speak HTTP to the outside world, one provider a module."""
