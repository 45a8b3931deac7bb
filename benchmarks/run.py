"""The benchmark: ours next to the physical limit and to the peers. Prints ratios, writes JSON, a picture and a table.

python benchmarks/run.py [--full] [--only NAME ...] [--fiches N ...] [--repetitions N] [--width 50] [--latency 0.05]

Names are limit, ours, ours-postgres, rate, start, ground and those of benchmarks/peers. A partial one writes nothing.
"""

import argparse
import os
import platform
import sys
from datetime import UTC, datetime

import contest
import ground
import rate
import start
import told
from contestants import LIMIT, OURS, Measured, check_same_rows, contestants, measure, ring
from plan import plan
from standing import bars_of, lines_of

RATE, START, GROUND = "rate", "start", "ground"
RATED = {"fiches": 250, "per_minute": 900}


def main() -> None:
    options = parse()
    conditions = conditions_of(options)
    done: list[tuple[int, Measured]] = []
    with ring(options.width, options.latency) as given:
        for heat in plan(only=options.only, fiches=options.fiches, repetitions=options.repetitions, full=options.full):
            for repetition, name in heat.turns():
                found = measure(name, heat.fiches, given)
                done.append((repetition, found))
                tell(found)
    check_rows([found for _, found in done])
    share = rated() if wants(options, RATE) else None
    began = start.ratio() if wants(options, START) else None
    on_ground = ground.measured() if wants(options, GROUND) else []
    conditions["load_after"] = os.getloadavg()[0]
    lines = lines_of(done)
    bars = [*bars_of(lines, share=share, start=began), *(found.bar for found in on_ground if found.bar)]
    print(f"\n{conditions}\n\n{told.text(lines, bars)}")
    if not (options.only or options.fiches):
        more = {"rate_share": share, "start_ratio": began, "ground": [found.plain() for found in on_ground]}
        told.write_json(lines, bars, conditions, more)
        told.draw(lines, conditions)
        told.renew_readme(told.table(lines, conditions))


def tell(found: Measured) -> None:
    took = f"{found.name:16} {found.fiches:7,} {found.seconds:9.2f} s"
    print(f"{took}  {found.megabytes:5.0f} MB  load {os.getloadavg()[0]:.1f}", flush=True)


def rated() -> float:
    found = rate.measure(**RATED)
    print(f"{RATE:16} {RATED['per_minute']} calls a minute: {found.took:.1f} s, ideal {found.ideal:.1f} s", flush=True)
    return found.share


def check_rows(done: list[Measured]) -> None:
    """Of each size the limit's against ours."""
    ours, limit = ({each.fiches: each for each in done if each.name == name} for name in (OURS, LIMIT))
    for fiches in ours.keys() & limit.keys():
        check_same_rows(ours[fiches], limit[fiches])


def wants(options: argparse.Namespace, name: str) -> bool:
    return name in options.only or not (options.only or options.fiches)


def conditions_of(options: argparse.Namespace) -> dict:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "command": "make bench" + (" FULL=1" if options.full else ""),
        "latency_seconds": options.latency,
        "at_once": options.width,
        "load": os.getloadavg()[0],
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="10,000 for all, more repetitions")
    parser.add_argument("--only", nargs="+", default=[], choices=[*contestants(), RATE, START, GROUND], metavar="NAME")
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
