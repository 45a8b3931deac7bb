"""What can be done about audits: one verb a module. Each is safe to repeat."""
