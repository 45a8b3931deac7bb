"""What can be done with automations: one verb a module. Each is safe to repeat."""
