"""Automations over a call centre's sales records. `definitions` is Dagster's doorway, `cli` the
operators'."""
