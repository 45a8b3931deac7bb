"""The job of automations and the sensors that look after its runs."""
