"""A place in a recording as people read it."""

from math import isfinite


def minutage(seconds: float) -> str:
    """MM:SS, the second having begun. Minutes go on after 59: three hours are 180:00."""
    whole = int(seconds) if isfinite(seconds) and seconds > 0 else 0
    return f"{whole // 60:02d}:{whole % 60:02d}"
