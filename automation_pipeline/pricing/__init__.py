"""Pricing: rules that change the prices of a shop's variants: previewed first, applied once, taken
back on demand."""
