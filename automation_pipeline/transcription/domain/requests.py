"""Keys of requests to transcribe. The key decides what counts as asking twice."""

from dataclasses import dataclass
from datetime import date, datetime


@dataclass(frozen=True)
class Asked:
    """What a batch finds about a fiche: its wishes of the day, whether one is under way, whether nothing is lacking."""

    wishes_today: int = 0
    under_way: bool = False
    complete: bool = False


@dataclass(frozen=True)
class Requested:
    """`run_id` is the run that will work on the fiche, or works on it. Without a `key` nothing new was asked for."""

    fiche_id: str
    run_id: str | None
    key: str | None


def single_key(fiche_id: str, now: datetime) -> str:
    """Every wish for one fiche is its own."""
    return f"transcribe-{fiche_id}-{round(now.timestamp() * 1000)}"


def batch_key(fiche_id: str, day: date, asked: Asked) -> str | None:
    """None when the batch asks for nothing new. Once a day is enough, but a fiche whose wish has been carried out and
    that still lacks transcripts is asked for again on purpose."""
    key = f"transcribe-{fiche_id}-{day.isoformat()}"
    if asked.wishes_today == 0:
        return key
    return None if asked.under_way or asked.complete else f"{key}-retry-{asked.wishes_today}"
