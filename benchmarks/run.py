"""The benchmark: ours next to the physical limit and to the peers. Prints ratios, writes JSON, a
picture and a table.

python benchmarks/run.py [--full] [--more] [--only NAME ...] [--fiches N ...] [--repetitions N]
[--minutes 10]
    [--width 50] [--latency 0.05]

Names are limit, ours, ours-postgres, rate, start, ground and those of benchmarks/peers. What is
measured is kept at once in benchmarks/results/measured.json. A whole one, or one that goes on with
it (--more), writes the rest.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import contest
import ground
import rate
import start
import told
from contestants import LIMIT, OURS, Measured, check_same_rows, contestants, measure, ring
from notebook import Notebook, Turn, bars_in, code
from plan import Heat, plan
from standing import bars_of, lines_of

RATE, START, GROUND = "rate", "start", "ground"
RATED = {"fiches": 250, "per_minute": 900}


def main() -> None:
    options = parse()
    heats = plan(
        only=options.only, fiches=options.fiches, repetitions=options.repetitions, full=options.full
    )
    notes = Notebook(conditions_of(options), goes_on=options.more)
    left = compare([turn for heat in heats for turn in turns_of(heat)], notes, options)
    check_rows(list(notes.turns.values()))
    measure_more(notes, options)
    notes.keep()
    lines = lines_of([(repetition, found) for (_, repetition, _), found in notes.turns.items()])
    rate_share, start_ratio = notes.more.get(RATE), notes.more.get(START)
    bars = [*bars_of(lines, share=rate_share, start=start_ratio), *bars_in(notes.more)]
    print(f"\n{notes.conditions}\n\n{told.text(lines, bars)}")
    if left:
        print(
            f"\nThe time is over with {left} measurements left: --more (make bench MORE=1) goes on with them."
        )
    if options.more or not (options.only or options.fiches):
        told.write_json(lines, bars, notes.conditions, notes.more)
        told.draw(lines, notes.conditions)
        told.renew_page(told.table(lines, bars, notes.conditions))


def turns_of(heat: Heat) -> Iterator[Turn]:
    return ((heat.fiches, repetition, name) for repetition, name in heat.turns())


def compare(turns: Sequence[Turn], notes: Notebook, options: argparse.Namespace) -> int:
    """How many turns were not begun, because the time was over."""
    began = time.monotonic()
    left = [turn for turn in turns if turn not in notes.turns]
    with ring(options.width, options.latency) as given:
        while left and (options.full or time.monotonic() - began < 60 * options.minutes):
            fiches, repetition, name = left.pop(0)
            found = measure(name, fiches, given)
            load = os.getloadavg()[0]
            notes.note(repetition, found, load)
            tell(found, load)
    return len(left)


def measure_more(notes: Notebook, options: argparse.Namespace) -> None:
    """What has no contestants, and is not known yet."""
    if wants(options, RATE) and RATE not in notes.more:
        notes.more[RATE] = rated()
    if wants(options, START) and START not in notes.more:
        notes.more[START] = start.ratio()
    if wants(options, GROUND) and GROUND not in notes.more:
        found = ground.measured()
        notes.more[GROUND] = [each.plain() for each in found]
        notes.more["ground_bars"] = [asdict(each.bar) for each in found if each.bar]


def tell(found: Measured, load: float) -> None:
    took = f"{found.name:16} {found.fiches:7,} {found.seconds:9.2f} s"
    print(f"{took}  {found.megabytes:5.0f} MB  load {load:.1f}", flush=True)


def rated() -> float:
    found = rate.measure(**RATED)
    print(
        f"{RATE:16} {RATED['per_minute']} calls a minute: {found.took:.1f} s, ideal {found.ideal:.1f} s",
        flush=True,
    )
    return found.share


def check_rows(done: list[Measured]) -> None:
    """Of each size the limit's against ours."""
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
    parser.add_argument("--full", action="store_true", help="10,000 for all, more repetitions")
    parser.add_argument(
        "--more", action="store_true", help="go on with what is kept, of the same machine and code"
    )
    parser.add_argument(
        "--minutes", type=float, default=10, help="after which no contestant begins, unless --full"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=[*contestants(), RATE, START, GROUND],
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
    except contest.NotDoneError as error:
        sys.exit(str(error))
