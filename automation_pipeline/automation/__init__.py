"""Automations: schedules that pick fiches, and runs that carry them through and leave one outcome a
fiche."""
