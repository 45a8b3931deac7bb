"""What can be done about prices: one verb a module. Each is safe to repeat."""
