"""`make survive`: injects seeded faults into whole installations.

`plan` draws the faults and their times, `world` runs an installation, `injection` injects a fault,
and `checks` examines the result. `__main__` is the command.
"""
