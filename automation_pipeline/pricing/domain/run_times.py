"""How long runs wait and take, as spreads: by the names of their measures, and of the buckets that they fall into."""

APPLY_MS, QUEUE_MS = "rules_apply_duration_ms", "rules_queue_ms"
SPREADS = (APPLY_MS, QUEUE_MS)

# The longest run that is planned for takes a good hour.
BOUNDS_MS = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000)
_BEYOND = "+Inf"
BUCKETS = (*(str(float(bound)) for bound in BOUNDS_MS), _BEYOND)


def bucket_of(milliseconds: float) -> str:
    """The smallest one that holds it, by its upper bound."""
    return next((str(float(bound)) for bound in BOUNDS_MS if milliseconds <= bound), _BEYOND)


def buckets_measure(spread: str) -> str:
    """Each time that is counted is in one bucket only."""
    return f"{spread}_bucket"


def sum_measure(spread: str) -> str:
    return f"{spread}_sum"
