"""Measures single components on full tables: ticks that find due schedules, the query for missing
transcripts, the outbox relay, reads of the API, and the chunks of a transcript.

python benchmarks/components.py [--only due gate relay read chunks] [--schedules 100 1000 10000]
    [--recordings 10000 1000000] [--repetitions 5]

It starts a PostgreSQL server. Measurements without a PostgreSQL-only target run on SQLite too.
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
from types import SimpleNamespace
from typing import cast

import component_rows
import pipeline_run
import read_api
from evaluation import Bar
from timings import Setup, Timings, joined, migrated

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
# Enough for a percentile; `make bench-siblings` makes more requests.
REQUESTS, WIDTH, SHARES = 500, 8, 3


@dataclass(frozen=True)
class Finding:
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
        """For JSON, without the target, which is stored separately."""
        return {name: value for name, value in asdict(self).items() if name != "bar"}


@dataclass
class FakeClock:
    at: datetime

    def now(self) -> datetime:
        return self.at


def due(setup: Setup) -> Iterator[Finding]:
    counts: dict[str, dict[int, list[int]]] = {}
    for number in setup.schedules:
        for name, database in setup.databases():
            busy, idle, started = time_due_ticks(database, number, setup.repetitions)
            counts.setdefault(name, {})[number] = busy.statements
            what = f"due tick, {number:,} schedules, {name}"
            more = f"{busy}, {started:,.0f} runs started; where none is due {idle.median:.3f} s, {idle}"
            yield Finding(
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
            yield Finding(what, max(map(max, by_number.values())), "at most", bar=bar)


def time_due_ticks(
    database: Database, number: int, repetitions: int
) -> tuple[Timings, Timings, float]:
    """The ticks that find one schedule in twenty due, the ticks 15 s later that find none, and the
    number of started runs."""
    clock, rules = FakeClock(BEGAN_AT), due_rules(Settings())
    busy, idle, started = Timings(), Timings(), []

    def run_once() -> int:
        return len(start_due_runs(rules, database=database, clock=clock).triggered)

    component_rows.fill_schedules(database, clock, number)
    run_once()  # every schedule is new to it
    for n in range(1, repetitions + 1):
        component_rows.end_runs(database, clock.at)
        clock.at = BEGAN_AT + n * timedelta(minutes=5)
        started.append(busy.take(database, run_once))
        clock.at += timedelta(seconds=15)
        idle.take(database, run_once)
    return busy, idle, median(started)


def gate(setup: Setup) -> Iterator[Finding]:
    """The query that a run repeats for the fiches of a batch: for neighbouring rows, like the
    fiches of a day, and for rows scattered over the table. The first query, before the pages are in
    memory, is reported separately."""
    size = batch_size(FICHES_A_RUN, 1)
    with migrated(pipeline_run.fresh_database(setup.server)) as database:
        for number in sorted(setup.recordings):
            started_at = time.perf_counter()
            fiches = component_rows.fill_recordings(database, number)
            filled = f"filled in {time.perf_counter() - started_at:.0f} s"
            for words, batches in batches_of(fiches, size, setup.repetitions).items():
                what = f"gate snapshot, {number:,} recordings, {size:,} fiches {words}, PostgreSQL"
                first, again = time_gate_snapshots(database, batches)
                more = f"{again}; the first time {1000 * first.median:.3g} ms; {filled}"
                taken = 1000 * again.median
                yield Finding(
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


def time_gate_snapshots(
    database: Database, batches: Sequence[Sequence[int]]
) -> tuple[Timings, Timings]:
    first, again = Timings(), Timings()
    for batch in batches:
        fiche_ids = [f"fiche-{n}" for n in batch]
        for timings_ in (first, again, again, again):
            lacking = timings_.take(
                database, lambda fiche_ids=fiche_ids: snapshot(database, fiche_ids)
            )
            assert len(lacking) == len(batch)
            assert any(lacking.values())
    return first, again


def snapshot(database: Database, fiche_ids: Sequence[str]) -> dict[str, int]:
    """The query of the gate of automation runs."""
    with database.reading() as session:
        return dict(untranscribed(session, fiche_ids))


class InstantPublisher:
    """A publisher that accepts all events at once."""

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        return PublishResult(len(events))


def relay(setup: Setup) -> Iterator[Finding]:
    for name, database in setup.databases():
        timings_ = Timings()
        for n in range(setup.repetitions):
            component_rows.fill_outbox(
                database, range(n * EVENTS, (n + 1) * EVENTS), RUNS, BEGAN_AT
            )
            relayed = timings_.take(database, lambda database=database: relay_all(database))
            assert relayed == EVENTS
        more = f"{EVENTS:,} events of {RUNS} runs, {timings_}"
        yield Finding(f"outbox relay, {name}", EVENTS / timings_.median, "events/s", more)


def relay_all(database: Database) -> int:
    """Send all waiting events, and return their number."""
    services = SimpleNamespace(
        webhooks=None,
        mail=None,
        publisher=InstantPublisher(),
        webhook_secret=None,
        delivery_policy=DeliveryPolicy(1, Backoff(base_seconds=0, cap_seconds=0), 1.0),
    )
    delivery_services = cast("DeliveryServices", services)
    relayed = relay_events(delivery_services, database=database, budget_seconds=600)
    return asyncio.run(relayed).events


def read(setup: Setup) -> Iterator[Finding]:
    for name, url in setup.urls().items():
        shares = [
            read_api.measured(url, setup.folder, requests=REQUESTS, width=WIDTH)
            for _ in range(SHARES)
        ]
        bare, api = (
            [median(read_api.p(q, each[n]) for each in shares) for q in (50, 99)] for n in (0, 1)
        )
        ratio = median(read_api.p(99, served) / read_api.p(99, query) for query, served in shares)
        what = f"API read / bare query, p99, {WIDTH} at once, {name}"
        more = f"p50 {api[0]:.1f} / {bare[0]:.1f} ms, p99 {api[1]:.1f} / {bare[1]:.1f} ms"
        bar = Bar(what, f"<= {read_api.MOST:g}", f"{ratio:.2f}", ratio <= read_api.MOST)
        yield Finding(what, ratio, "times", more, bar)


def chunks(setup: Setup) -> Iterator[Finding]:
    given = component_rows.transcript(WORDS)
    took = []
    for _ in range(setup.repetitions):
        started_at = time.perf_counter()
        created = chunks_of(words_or_estimated(given, None))
        took.append(time.perf_counter() - started_at)
    yield Finding(
        f"transcript of {WORDS:,} words to chunks",
        1000 * median(took),
        "ms",
        f"{len(created):,} chunks",
    )


NAMES: Mapping[str, Callable[[Setup], Iterator[Finding]]] = {
    each.__name__: each for each in (due, gate, relay, read, chunks)
}


def below(what: str, value: float, unit: str, most: float | None) -> Bar | None:
    """None without a target."""
    return (
        None
        if most is None
        else Bar(what, f"< {most:g} {unit}", f"{value:.3g} {unit}", value < most)
    )


def constant(what: str, by_size: Mapping[int, Sequence[int]]) -> Bar:
    every = {count for counts in by_size.values() for count in counts}
    return Bar(what, "always as many", joined(every), len(every) == 1)


def measured(*, only: Sequence[str] = (), **sizes: Sequence[int] | int) -> list[Finding]:
    """Prints each finding as soon as it is measured."""
    found: list[Finding] = []
    with pipeline_run.server() as server, tempfile.TemporaryDirectory(prefix="ground-") as folder:
        setup = Setup(server=server, folder=Path(folder), **SIZES | sizes)
        for each in (one for name in only or NAMES for one in NAMES[name](setup)):
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
