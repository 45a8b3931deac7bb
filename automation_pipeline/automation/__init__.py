"""Automations: schedules that select fiches, and runs that process them and record one outcome per
fiche."""
