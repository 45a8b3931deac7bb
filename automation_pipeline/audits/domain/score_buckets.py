"""Scores by equal steps from 0: a bucket holds its lower bound and not its upper one, but for the last, up to 100."""

HIGHEST = 100


def last_bucket(size: int) -> int:
    """The lower bound of the last."""
    return (HIGHEST - 1) // size * size


def bucket_name(lowest: int, size: int) -> str:
    return f"{lowest}-{min(lowest + size, HIGHEST)}"
