"""What is true outside, whichever provider tells it: pure functions of a seed. Start at
`world.py`."""
