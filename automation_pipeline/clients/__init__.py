"""The clients of external systems, one module per system."""
