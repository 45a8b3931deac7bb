"""Scheduled jobs of organisations: when they are due, their queues, and who does them."""
