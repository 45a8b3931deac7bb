"""A language model as the outside world plays it: `openai.py` is its HTTP face, `judge.py` reads
transcripts."""
