"""A part of a list."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A page of a list."""

    limit: int
    offset: int = 0
