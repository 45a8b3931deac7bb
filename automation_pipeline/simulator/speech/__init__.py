"""Speech-to-text as the outside world plays it: `elevenlabs.py` answers, `conversation.py` knows
what is said."""
