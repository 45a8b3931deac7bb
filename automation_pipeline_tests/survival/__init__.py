"""`make survive`: whole installations under seeded faults. `plan` says what happens when, `world`
is what it happens to, `strikes` does it, `checks` looks at what is left; `__main__` is the command.
"""
