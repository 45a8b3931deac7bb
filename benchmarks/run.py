"""Compares a whole `automation_run` with the physical limit and with peers. It prints ratios, and
writes JSON, a chart and a table.

python benchmarks/run.py [--full] [--more] [--only NAME ...] [--fiches N ...] [--repetitions N]
    [--minutes 10] [--width 50] [--latency 0.05]

Names are limit, limit-apart, ours, ours-postgres, rate, start, components, and the folders of
benchmarks/peers. Each measurement is stored at once in benchmarks/results/measured.json. A whole
benchmark, or one that continues the last one (--more), also writes the chart and the table.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import components
import harness
import rate
import report
import start
from competitors import (
    LIMIT,
    OURS,
    Measurement,
    check_same_rows,
    competitors,
    measure,
    open_environment,
)
from evaluation import bars_of, lines_of
from plan import Round, plan
from saved_results import SavedResults, Turn, bars_in, code

RATE, START, COMPONENTS = "rate", "start", "components"
RATED = {"fiches": 250, "per_minute": 900}


def main() -> None:
    options = parse()
    rounds = plan(
        only=options.only, fiches=options.fiches, repetitions=options.repetitions, full=options.full
    )
    saved = SavedResults(conditions_of(options), keep_stored=options.more)
    left = compare([turn for round_ in rounds for turn in turns_of(round_)], saved, options)
    check_rows(list(saved.turns.values()))
    measure_more(saved, options)
    saved.keep()
    lines = lines_of([(repetition, found) for (_, repetition, _), found in saved.turns.items()])
    rate_share, start_ratio = saved.more.get(RATE), saved.more.get(START)
    bars = [*bars_of(lines, share=rate_share, start=start_ratio), *bars_in(saved.more)]
    print(f"\n{saved.conditions}\n\n{report.text(lines, bars)}")
    if left:
        print(
            f"\nThe time limit is reached. {left} measurements are missing: --more (make bench MORE=1) continues."
        )
    if options.more or not (options.only or options.fiches):
        report.write_json(lines, bars, saved.conditions, saved.more)
        report.draw(lines, saved.conditions)
        report.renew_page(report.table(lines, bars, saved.conditions))


def turns_of(round_: Round) -> Iterator[Turn]:
    return ((round_.fiches, repetition, name) for repetition, name in round_.turns())


def compare(turns: Sequence[Turn], saved: SavedResults, options: argparse.Namespace) -> int:
    """Returns the number of turns for which no time was left."""
    started_at = time.monotonic()
    left = [turn for turn in turns if turn not in saved.turns]
    with open_environment(options.width, options.latency) as environment:
        while left and (options.full or time.monotonic() - started_at < 60 * options.minutes):
            fiches, repetition, name = left.pop(0)
            found = measure(name, fiches, environment)
            load = os.getloadavg()[0]
            saved.note(repetition, found, load)
            print_measurement(found, load)
    return len(left)


def measure_more(saved: SavedResults, options: argparse.Namespace) -> None:
    """Measure what has no competitors, unless it is stored already."""
    if wants(options, RATE) and RATE not in saved.more:
        saved.more[RATE] = rated()
    if wants(options, START) and START not in saved.more:
        saved.more[START] = start.ratio()
    if wants(options, COMPONENTS) and COMPONENTS not in saved.more:
        found = components.measured()
        saved.more[COMPONENTS] = [each.plain() for each in found]
        saved.more["component_bars"] = [asdict(each.bar) for each in found if each.bar]


def print_measurement(found: Measurement, load: float) -> None:
    took = f"{found.name:16} {found.fiches:7,} {found.seconds:9.2f} s"
    print(f"{took}  {found.megabytes:5.0f} MB  load {load:.1f}", flush=True)


def rated() -> float:
    found = rate.measure(**RATED)
    print(
        f"{RATE:16} {RATED['per_minute']} calls per minute: {found.took:.1f} s, ideal {found.ideal:.1f} s",
        flush=True,
    )
    return found.share


def check_rows(done: list[Measurement]) -> None:
    """Compare the rows of the limit and of `automation_run` at each size."""
    ours, limit = (
        {each.fiches: each for each in done if each.name == name} for name in (OURS, LIMIT)
    )
    for fiches in ours.keys() & limit.keys():
        check_same_rows(ours[fiches], limit[fiches])


def wants(options: argparse.Namespace, name: str) -> bool:
    return name in options.only or not (options.only or options.fiches)


def conditions_of(options: argparse.Namespace) -> dict:
    return {
        "code": code(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "command": "make bench" + (" FULL=1" if options.full else ""),
        "latency_seconds": options.latency,
        "at_once": options.width,
        "loads": [],
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="more repetitions, and 10,000 fiches for every competitor",
    )
    parser.add_argument(
        "--more",
        action="store_true",
        help="continue the stored measurements of the same machine and code",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=10,
        help="after this time no competitor begins, unless --full",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=[*competitors(), RATE, START, COMPONENTS],
        metavar="NAME",
    )
    parser.add_argument("--fiches", nargs="+", type=int, default=[])
    parser.add_argument("--repetitions", type=int, default=0)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--latency", type=float, default=0.05)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except harness.IncompleteRunError as error:
        sys.exit(str(error))
