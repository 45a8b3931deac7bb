"""How long runs wait and take: the names of the spreads that the worker counts them in."""

APPLY_MS, QUEUE_MS = "rules_apply_duration_ms", "rules_queue_ms"
