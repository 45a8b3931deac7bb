"""The facts that all simulated providers share: pure functions of a seed. Start at
`world.py`."""
