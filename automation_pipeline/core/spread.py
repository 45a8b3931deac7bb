"""Lengths of time as spreads: how many fell into which bucket, and their sum, counted by `meter`."""

from automation_pipeline.core.meter import Meter

# From what a tick takes to the longest work that is planned for.
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


def observe(meter: Meter, spread: str, milliseconds: float) -> None:
    meter.count(buckets_measure(spread), le=bucket_of(milliseconds))
    meter.count(sum_measure(spread), milliseconds)
