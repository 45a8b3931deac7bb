"""Pusher Channels' HTTP API: signed calls, the provider's limits, and a list of what was
published."""
