"""What a schedule does when the last job is still at work, or when a due time was missed."""

from enum import StrEnum


class OverlapPolicy(StrEnum):
    """SKIP: the new one is left out. BUFFER_ONE: one waits behind the one at work, further ones are left out.
    BUFFER_ALL: all wait in line. CANCEL_OTHER: the others are asked to stop, and the new one waits for that.
    TERMINATE_OTHER: the others are ended at once. ALLOW_ALL: they run side by side."""

    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    BUFFER_ALL = "BUFFER_ALL"
    CANCEL_OTHER = "CANCEL_OTHER"
    TERMINATE_OTHER = "TERMINATE_OTHER"
    ALLOW_ALL = "ALLOW_ALL"

    @property
    def is_serial(self) -> bool:
        """Its jobs wait for those before them."""
        return self is not OverlapPolicy.ALLOW_ALL


class MisfirePolicy(StrEnum):
    """Once a due time is later than the grace. SKIP: all that was missed is left out. FIRE_ONCE: the newest is run.
    FIRE_ALL: the newest ten are run, oldest first."""

    SKIP = "SKIP"
    FIRE_ONCE = "FIRE_ONCE"
    FIRE_ALL = "FIRE_ALL"


MOST_CAUGHT_UP = 10
DEFAULT_GRACE_SECONDS = 3600
DEFAULT_AUTO_PAUSE_AFTER = 10
