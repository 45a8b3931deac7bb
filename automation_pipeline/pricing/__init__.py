"""Pricing: rules that change the prices of a shop's variants. A run is previewed, applied once, and
can be rolled back."""
