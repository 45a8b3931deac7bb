"""Realtime events to browsers, by Pusher's protocol."""
