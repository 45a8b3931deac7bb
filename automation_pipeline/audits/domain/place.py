"""Where in an audit something is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A step by its position or, given a `point`, one of its control points. Both count from 1."""

    audit_id: int
    position: int
    point: int | None = None
