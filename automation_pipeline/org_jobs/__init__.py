"""Scheduled jobs of organisations: due times, queues, agents and workers."""
