"""The ground under load: looks for due schedules, the gate's snapshot, the relay, the API, cutting
transcripts.

python benchmarks/ground.py [--only due gate relay read chunks] [--schedules 100 1000 10000]
    [--recordings 10000 1000000] [--repetitions 5]

It starts a PostgreSQL of its own; what no bar says of PostgreSQL alone is measured on SQLite too.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import ground_rows
import ours
import read_api
from ground_looks import Asked, Looks, joined, migrated
from standing import Bar

from automation_pipeline.automation.ports import DeliveryServices, PublishResult
from automation_pipeline.automation.queries.ledger import untranscribed
from automation_pipeline.automation.relay import relay_events
from automation_pipeline.automation.rules.fiches import batch_size
from automation_pipeline.automation.schedules import start_due_runs
from automation_pipeline.bootstrap import due_rules
from automation_pipeline.core.events import Event
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.settings import Settings
from automation_pipeline.core.webhooks import DeliveryPolicy
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.rules import chunks_of, words_or_estimated

MOST_DUE_SECONDS = {10_000: 1.0}
MOST_GATE_MILLISECONDS = {1_000_000: 20.0}
SIZES = {"schedules": (100, 1000, 10_000), "recordings": (10_000, 1_000_000), "repetitions": 5}
BEGAN_AT = datetime(2026, 5, 4, 10, 0, 30, tzinfo=UTC)
FICHES_A_RUN = 1000
EVENTS, RUNS = 10_000, 100
WORDS = 50_000
# Enough for a percentile; `make bench-siblings` reads more often.
REQUESTS, WIDTH, SHARES = 500, 8, 3


@dataclass(frozen=True)
class Found:
    """One measurement; `value` is a median."""

    what: str
    value: float
    unit: str
    more: str = ""
    bar: Bar | None = None
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def __str__(self) -> str:
        verdict = (
            f"{'reached' if self.bar.is_reached else 'MISSED'} ({self.bar.wanted})"
            if self.bar
            else "no bar"
        )
        result = f"{self.what}: {self.value:,.4g} {self.unit}" if self.value < 1000 else ""
        result = result or f"{self.what}: {self.value:,.0f} {self.unit}"
        return "; ".join(filter(None, [result, self.more, f"load {self.load:.1f}", verdict]))

    def plain(self) -> dict[str, object]:
        """For JSON; its bar stands among the others."""
        return {name: value for name, value in asdict(self).items() if name != "bar"}


@dataclass
class Standing:
    at: datetime

    def now(self) -> datetime:
        return self.at


def due(asked: Asked) -> Iterator[Found]:
    counts: dict[str, dict[int, list[int]]] = {}
    for number in asked.schedules:
        for name, database in asked.places():
            busy, idle, started = due_looks(database, number, asked.repetitions)
            counts.setdefault(name, {})[number] = busy.statements
            what = f"due tick, {number:,} schedules, {name}"
            more = f"{busy}, {started:,.0f} runs started; where none is due {idle.median:.3f} s, {idle}"
            yield Found(
                what,
                busy.median,
                "s",
                more,
                below(what, busy.median, "s", MOST_DUE_SECONDS.get(number)),
            )
    for name, by_number in counts.items():
        if len(by_number) > 1:
            what = f"statements of a due tick, {min(by_number):,} to {max(by_number):,} schedules, {name}"
            bar = constant(what, by_number)
            yield Found(what, max(map(max, by_number.values())), "at most", bar=bar)


def due_looks(database: Database, number: int, repetitions: int) -> tuple[Looks, Looks, float]:
    """Those that find one schedule in twenty due, those 15 s later that find none, and how many
    runs were started."""
    clock, rules = Standing(BEGAN_AT), due_rules(Settings())
    busy, idle, started = Looks(), Looks(), []

    def look() -> int:
        return len(start_due_runs(rules, database=database, clock=clock).triggered)

    ground_rows.fill_schedules(database, clock, number)
    look()  # every schedule is new to it
    for n in range(1, repetitions + 1):
        ground_rows.end_runs(database, clock.at)
        clock.at = BEGAN_AT + n * timedelta(minutes=5)
        started.append(busy.take(database, look))
        clock.at += timedelta(seconds=15)
        idle.take(database, look)
    return busy, idle, median(started)


def gate(asked: Asked) -> Iterator[Found]:
    """The gate asks about the fiches of a batch again and again: about those of a day, which lie
    side by side, and about some from all over the table. Their details have just been fetched: the
    first look stands for itself."""
    size = batch_size(FICHES_A_RUN, 1)
    with migrated(ours.fresh_database(asked.server)) as database:
        for number in sorted(asked.recordings):
            began = time.perf_counter()
            fiches = ground_rows.fill_recordings(database, number)
            filled = f"filled in {time.perf_counter() - began:.0f} s"
            for words, batches in batches_of(fiches, size, asked.repetitions).items():
                what = f"gate snapshot, {number:,} recordings, {size:,} fiches {words}, PostgreSQL"
                first, again = gate_looks(database, batches)
                more = f"{again}; the first time {1000 * first.median:.3g} ms; {filled}"
                taken = 1000 * again.median
                yield Found(
                    what,
                    taken,
                    "ms",
                    more,
                    below(what, taken, "ms", MOST_GATE_MILLISECONDS.get(number)),
                )


def batches_of(fiches: int, size: int, repetitions: int) -> dict[str, list[Sequence[int]]]:
    everybody = range(1, fiches + 1)
    starts = [n * (fiches - size) // repetitions for n in range(repetitions)]
    return {
        "side by side": [everybody[start : start + size] for start in starts],
        "scattered": [random.Random(n).sample(everybody, size) for n in range(repetitions)],
    }


def gate_looks(database: Database, batches: Sequence[Sequence[int]]) -> tuple[Looks, Looks]:
    first, again = Looks(), Looks()
    for batch in batches:
        fiche_ids = [f"fiche-{n}" for n in batch]
        for looks in (first, again, again, again):
            lacking = looks.take(
                database, lambda fiche_ids=fiche_ids: snapshot(database, fiche_ids)
            )
            assert len(lacking) == len(batch)
            assert any(lacking.values())
    return first, again


def snapshot(database: Database, fiche_ids: Sequence[str]) -> dict[str, int]:
    """As automation's gate takes it."""
    with database.reading() as session:
        return dict(untranscribed(session, fiche_ids))


class AtOnce:
    """A publisher that takes no time."""

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        return PublishResult(len(events))


def relay(asked: Asked) -> Iterator[Found]:
    for name, database in asked.places():
        looks = Looks()
        for n in range(asked.repetitions):
            ground_rows.fill_outbox(database, range(n * EVENTS, (n + 1) * EVENTS), RUNS, BEGAN_AT)
            relayed = looks.take(database, lambda database=database: carried(database))
            assert relayed == EVENTS
        more = f"{EVENTS:,} events of {RUNS} runs, {looks}"
        yield Found(f"outbox relay, {name}", EVENTS / looks.median, "events/s", more)


def carried(database: Database) -> int:
    """How many events, until none waits."""
    patience = DeliveryPolicy(1, Backoff(base_seconds=0, cap_seconds=0), 1.0)
    post = DeliveryServices(
        webhooks=None, mail=None, publisher=AtOnce(), secret=None, patience=patience
    )
    return asyncio.run(relay_events(post, database=database, budget_seconds=600)).events


def read(asked: Asked) -> Iterator[Found]:
    for name, url in asked.urls().items():
        shares = [
            read_api.measured(url, asked.room, requests=REQUESTS, width=WIDTH)
            for _ in range(SHARES)
        ]
        bare, api = (
            [median(read_api.p(q, each[n]) for each in shares) for q in (50, 99)] for n in (0, 1)
        )
        ratio = median(read_api.p(99, served) / read_api.p(99, query) for query, served in shares)
        what = f"API read / bare query, p99, {WIDTH} at once, {name}"
        more = f"p50 {api[0]:.1f} / {bare[0]:.1f} ms, p99 {api[1]:.1f} / {bare[1]:.1f} ms"
        bar = Bar(what, f"<= {read_api.MOST:g}", f"{ratio:.2f}", ratio <= read_api.MOST)
        yield Found(what, ratio, "times", more, bar)


def chunks(asked: Asked) -> Iterator[Found]:
    given = ground_rows.transcript(WORDS)
    took = []
    for _ in range(asked.repetitions):
        began = time.perf_counter()
        made = chunks_of(words_or_estimated(given, None))
        took.append(time.perf_counter() - began)
    yield Found(
        f"transcript of {WORDS:,} words to chunks",
        1000 * median(took),
        "ms",
        f"{len(made):,} chunks",
    )


NAMES: Mapping[str, Callable[[Asked], Iterator[Found]]] = {
    each.__name__: each for each in (due, gate, relay, read, chunks)
}


def below(what: str, value: float, unit: str, most: float | None) -> Bar | None:
    """None where none was set."""
    return (
        None
        if most is None
        else Bar(what, f"< {most:g} {unit}", f"{value:.3g} {unit}", value < most)
    )


def constant(what: str, by_size: Mapping[int, Sequence[int]]) -> Bar:
    every = {count for counts in by_size.values() for count in counts}
    return Bar(what, "always as many", joined(every), len(every) == 1)


def measured(*, only: Sequence[str] = (), **sizes: Sequence[int] | int) -> list[Found]:
    """Told as they are found."""
    found: list[Found] = []
    with ours.server() as server, tempfile.TemporaryDirectory(prefix="ground-") as room:
        asked = Asked(server=server, room=Path(room), **SIZES | sizes)
        for each in (one for name in only or NAMES for one in NAMES[name](asked)):
            print(each, flush=True)
            found.append(each)
    return found


def main() -> None:
    found = measured(**vars(parse()))
    if missed := [each.what for each in found if each.bar and not each.bar.is_reached]:
        sys.exit(f"Missed: {'; '.join(missed)}.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], choices=list(NAMES), metavar="NAME")
    for name in ("schedules", "recordings"):
        parser.add_argument(f"--{name}", nargs="+", type=int, default=SIZES[name])
    parser.add_argument("--repetitions", type=int, default=SIZES["repetitions"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
