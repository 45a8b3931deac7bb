"""How much a source was asked at most in any window of time, from the times of its calls."""

from collections.abc import Iterable


def peak(times: Iterable[float], seconds: float) -> int:
    """The most calls in any such window, whichever moment it begins at."""
    ordered = sorted(times)
    first = most = 0
    for last, at in enumerate(ordered):
        while ordered[first] + seconds <= at:
            first += 1
        most = max(most, last - first + 1)
    return most
