"""What is done to an installation, and when: from a seed alone. "When" is a number of finished
pieces of work of the run (details, transcripts, judged steps), so that a slow machine gets the same
faults at the same places."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

FAULTS_A_RUN = 5
MOST_DEADLY = 3  # Dagster tries a run that died three times more
LAST_MOMENT = 40  # of the ninety pieces and more of a run


class Kind(StrEnum):
    RUN_WORKER = "run-worker"
    STEP = "step"
    PAUSE = "pause"
    DAEMON = "daemon"
    PAUSED_DAEMON = "paused-daemon"
    TWO_DAEMONS = "two-daemons"
    CODE_SERVER = "code-server"
    API = "api"
    CELERY_WORKER = "celery-worker"
    CELERY_CHILD = "celery-child"
    DATABASE = "database"
    REDIS = "redis"
    DISK_FULL = "disk-full"
    CLOCK = "clock"
    STORM = "storm"


class Profile(StrEnum):
    EMBEDDED = "embedded"
    PRODUCTION = "production"


MEANING = {
    Kind.RUN_WORKER: "kill -9 of the process of a Dagster run",
    Kind.STEP: "kill -9 of the process that works on a step, or the run's own where it has none",
    Kind.PAUSE: "the run's processes are stopped for seconds, often longer than they may be silent, and go on",
    Kind.DAEMON: "kill -9 of Dagster's daemon, which is started again",
    Kind.PAUSED_DAEMON: "Dagster's daemon is stopped for seconds and goes on",
    Kind.TWO_DAEMONS: "a second daemon works beside the first until the run's end",
    Kind.CODE_SERVER: "kill -9 of the process that serves the definitions; in production with its runs",
    Kind.API: "kill -9 of the HTTP API, which is started again",
    Kind.CELERY_WORKER: "kill -9 of a Celery worker with all its processes; started again",
    Kind.CELERY_CHILD: "kill -9 of the Celery worker's child that is at work",
    Kind.DATABASE: "PostgreSQL is shut down at once, without a word to its clients, and started again",
    Kind.REDIS: "Redis is killed and started again, empty",
    Kind.DISK_FULL: "nothing more can be written to the disk of the SQLite database for seconds",
    Kind.CLOCK: "the database's clock leaps: every stored instant is an hour older at once, or 20 s younger",
    Kind.STORM: "CRM, speech-to-text, the model and Pusher refuse, drop or spoil every second call for seconds",
}
# What takes an attempt at the run with it, or may.
DEADLY = frozenset(
    {
        Kind.RUN_WORKER,
        Kind.STEP,
        Kind.PAUSE,
        Kind.CODE_SERVER,
        Kind.DISK_FULL,
        Kind.DATABASE,
        Kind.REDIS,
        Kind.CELERY_WORKER,
    }
)
# What may hit whoever carries events, between sending one and writing down that it is sent.
HITS_THE_RELAY = frozenset(
    {
        Kind.DAEMON,
        Kind.PAUSED_DAEMON,
        Kind.TWO_DAEMONS,
        Kind.CODE_SERVER,
        Kind.DATABASE,
        Kind.DISK_FULL,
        Kind.CLOCK,
        Kind.STORM,
    }
)
# Others last ten. A run may be silent for twenty.
LONGEST_SECONDS = {Kind.PAUSE: 30.0}
_PRODUCTION_ONLY = {Kind.CELERY_WORKER, Kind.CELERY_CHILD, Kind.DATABASE, Kind.REDIS}
_EMBEDDED_ONLY = {Kind.DISK_FULL}


@dataclass(frozen=True)
class Fault:
    """Once `at` pieces are finished, for so many seconds; `chance` decides what is left open."""

    kind: Kind
    at: int
    seconds: float
    chance: float


@dataclass(frozen=True)
class Round:
    """One run, and what happens to it."""

    number: int
    faults: Sequence[Fault]


def kinds_of(profile: Profile, *, celery: bool = False) -> Sequence[Kind]:
    absent = _PRODUCTION_ONLY if profile is Profile.EMBEDDED else _EMBEDDED_ONLY
    without = {Kind.STEP} if celery else {Kind.CELERY_WORKER, Kind.CELERY_CHILD}
    return [kind for kind in Kind if kind not in absent | without]


def plan(seed: int, faults: int, kinds: Sequence[Kind]) -> Sequence[Round]:
    """So many faults, every kind about as often, in runs of a few faults each."""
    random = Random(seed)
    deck = [
        kind for _ in range(0, faults, len(kinds)) for kind in random.sample(kinds, len(kinds))
    ][:faults]
    return [
        Round(number, _faults(hand, random)) for number, hand in enumerate(_hands(deck), start=1)
    ]


def _hands(deck: Sequence[Kind]) -> Sequence[Sequence[Kind]]:
    """No run is struck dead more often than it is tried."""
    hands: list[list[Kind]] = []
    for kind in deck:
        fits = hands and len(hands[-1]) < FAULTS_A_RUN
        if fits and (kind not in DEADLY or sum(one in DEADLY for one in hands[-1]) < MOST_DEADLY):
            hands[-1].append(kind)
        else:
            hands.append([kind])
    return hands


def _faults(hand: Sequence[Kind], random: Random) -> Sequence[Fault]:
    moments = sorted(random.sample(range(LAST_MOMENT), len(hand)))
    return [
        Fault(
            kind,
            at,
            round(random.uniform(0.5, LONGEST_SECONDS.get(kind, 10.0)), 1),
            random.random(),
        )
        for kind, at in zip(hand, moments, strict=True)
    ]
