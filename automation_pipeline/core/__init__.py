"""The ground: errors, clock, retry arithmetic, cron and windows, settings, state machine. Knows no
room above."""
