"""A simulated language model: `openai.py` has the endpoints, `judge.py` reads transcripts."""
