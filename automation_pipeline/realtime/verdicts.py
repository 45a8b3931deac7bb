"""What the provider's answer means for the events that were to go out. No text repeats an answer to our signature."""

from collections.abc import Callable
from datetime import datetime

from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.realtime.wire import Answer

MOST_CHARACTERS = 200


class PusherAwayError(TransientError):
    """Pusher does not take events this time; they wait."""


class PusherRefusesUsError(TransientError):
    """Pusher does not accept our account: whoever set it up must act. Events wait for that; none is lost."""


class EventRefusedError(PermanentError):
    """Pusher does not take this event, and would not take it again."""


# Refusals that are about the moment, not about the event.
_PASSING = frozenset({408, 425, 429})
_SET_UP = {
    401: "Pusher refused our key or signature (401): check PUSHER_KEY, PUSHER_SECRET and this machine's clock",
    402: "Pusher takes nothing from this account (402): see what its plan allows",
    403: "Pusher takes nothing from this application (403): it is switched off, or over its quota",
    404: "Pusher does not know the application (404): check PUSHER_APP_ID and PUSHER_CLUSTER",
    407: "A proxy before Pusher refused us (407): check HTTPS_PROXY",
}


def verdict(answer: Answer, now: Callable[[], datetime]) -> AutomationError | None:
    """None: it was taken."""
    if answer.status in {200, 202}:
        return None
    if answer.status in _SET_UP:
        return PusherRefusesUsError(_SET_UP[answer.status])
    if 400 <= answer.status < 500 and answer.status not in _PASSING:
        said = " ".join("".join(filter(str.isprintable, answer.text)).split())[:MOST_CHARACTERS]
        return EventRefusedError(f"Pusher refused the event ({answer.status}){': ' if said else ''}{said}")
    wait = retry_after_seconds(answer.retry_after, now())
    return PusherAwayError(f"Pusher answered {answer.status}", retry_after_seconds=wait)
