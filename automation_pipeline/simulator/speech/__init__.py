"""Simulated speech-to-text: `elevenlabs.py` has the endpoint, `conversation.py` the words of a
call."""
