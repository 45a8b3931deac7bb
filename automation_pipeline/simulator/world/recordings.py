"""The calls of a fiche. A recording's file name carries French local time, its start is in UTC, as
upstream."""

import uuid
from datetime import UTC, datetime, timedelta
from random import Random

from automation_pipeline.simulator.world.values import Kind, Recording

USUAL_COUNTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 5)


def draw_recordings(
    rng: Random, kind: Kind, *, fiche_id: str, since: datetime, lines: tuple[str, str]
) -> tuple[Recording, ...]:
    """The calls between `lines` (agent, prospect), one after the other from `since`, which is local
    time."""
    recordings: list[Recording] = []
    local = since
    for number in range(_count(rng, kind)):
        local += timedelta(seconds=rng.randrange(60, 1200), milliseconds=rng.randrange(1000))
        outward = rng.random() < 0.8
        caller, called = lines if outward else lines[::-1]
        answered = rng.random() < 0.95
        recordings.append(
            Recording(
                call_id=f"{fiche_id}{number:02d}",
                started_at=local.astimezone(UTC),
                duration_seconds=rng.randrange(40, 1500) if answered else rng.randrange(1, 30),
                direction="out" if outward else "in",
                from_number=_international(caller),
                to_number=_international(called),
                answered=answered,
                file_name=_file_name(rng, local, _international(caller), _international(called)),
                has_url=not (kind is Kind.NO_URL and number == 0),
            )
        )
    return tuple(recordings)


def _count(rng: Random, kind: Kind) -> int:
    if kind is Kind.NO_RECORDINGS:
        return 0
    return rng.randrange(12, 19) if kind is Kind.MANY_RECORDINGS else rng.choice(USUAL_COUNTS)


def _file_name(rng: Random, local: datetime, caller: str, called: str) -> str:
    name = uuid.UUID(int=rng.getrandbits(128), version=4)
    return f"{name}-{local:%d-%m-%y-%Hh%M}-{caller}-{called}.mp3"


def _international(number: str) -> str:
    return f"33{number[1:]}"
