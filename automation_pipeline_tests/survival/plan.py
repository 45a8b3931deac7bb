"""Draws faults and their times from a seed. A time is a number of finished pieces of work of the run
(details, transcripts, judged steps), so that a slow machine gets the same faults at the same points."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

MAX_FAULTS_PER_RUN = 5
MAX_DEADLY_FAULTS = 3  # a run whose process is lost is started three more times
LAST_ITEM = 40  # a run has more than ninety pieces of work


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
    Kind.PAUSE: "the run's processes are stopped for seconds, often longer than the heartbeat limit, and resumed",
    Kind.DAEMON: "kill -9 of Dagster's daemon, which is started again",
    Kind.PAUSED_DAEMON: "Dagster's daemon is stopped for seconds and resumed",
    Kind.TWO_DAEMONS: "a second daemon runs until the run's end",
    Kind.CODE_SERVER: "kill -9 of the process that serves the definitions; in production its runs are killed too",
    Kind.API: "kill -9 of the HTTP API, which is started again",
    Kind.CELERY_WORKER: "kill -9 of a Celery worker with all its processes; started again",
    Kind.CELERY_CHILD: "kill -9 of the child process of a Celery worker that executes a step",
    Kind.DATABASE: "PostgreSQL is shut down at once, without notice to its clients, and started again",
    Kind.REDIS: "Redis is killed and started again, empty",
    Kind.DISK_FULL: "nothing more can be written to the disk of the SQLite database for seconds",
    Kind.CLOCK: "the database's clock jumps: every stored time is an hour older at once, or 20 s younger",
    Kind.STORM: "CRM, speech-to-text, the model and Pusher refuse, drop or corrupt every second call for seconds",
}
# Faults that may end the attempt of a run.
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
# Faults that may occur between sending an event and recording that it was sent.
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
# Other faults last up to ten seconds. A run without heartbeats for twenty seconds is lost.
LONGEST_SECONDS = {Kind.PAUSE: 30.0}
_PRODUCTION_ONLY = {Kind.CELERY_WORKER, Kind.CELERY_CHILD, Kind.DATABASE, Kind.REDIS}
_EMBEDDED_ONLY = {Kind.DISK_FULL}


@dataclass(frozen=True)
class Fault:
    """Injected once `at` pieces are finished, for `seconds`; `chance` decides between variants."""

    kind: Kind
    at: int
    seconds: float
    chance: float


@dataclass(frozen=True)
class Round:
    """One run and its faults."""

    number: int
    faults: Sequence[Fault]


def kinds_of(profile: Profile, *, celery: bool = False) -> Sequence[Kind]:
    absent = _PRODUCTION_ONLY if profile is Profile.EMBEDDED else _EMBEDDED_ONLY
    without = {Kind.STEP} if celery else {Kind.CELERY_WORKER, Kind.CELERY_CHILD}
    return [kind for kind in Kind if kind not in absent | without]


def plan(seed: int, faults: int, kinds: Sequence[Kind]) -> Sequence[Round]:
    """Faults of every kind, about equally often, in runs of a few faults each."""
    random = Random(seed)
    order = [
        kind for _ in range(0, faults, len(kinds)) for kind in random.sample(kinds, len(kinds))
    ][:faults]
    return [
        Round(number, _faults(kinds, random))
        for number, kinds in enumerate(_group_by_run(order), start=1)
    ]


def _group_by_run(order: Sequence[Kind]) -> Sequence[Sequence[Kind]]:
    """No run gets more deadly faults than it has attempts."""
    runs: list[list[Kind]] = []
    for kind in order:
        fits = runs and len(runs[-1]) < MAX_FAULTS_PER_RUN
        if fits and (
            kind not in DEADLY or sum(one in DEADLY for one in runs[-1]) < MAX_DEADLY_FAULTS
        ):
            runs[-1].append(kind)
        else:
            runs.append([kind])
    return runs


def _faults(kinds: Sequence[Kind], random: Random) -> Sequence[Fault]:
    items = sorted(random.sample(range(LAST_ITEM), len(kinds)))
    return [
        Fault(
            kind,
            at,
            round(random.uniform(0.5, LONGEST_SECONDS.get(kind, 10.0)), 1),
            random.random(),
        )
        for kind, at in zip(kinds, items, strict=True)
    ]
