"""A bare start, from the launch of the job to the first call of the CRM, next to `python -c "import
dagster"`.

python benchmarks/start.py [--repetitions 7]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import contest
import ours

MOST = 2.5
FICHES = 10


def main() -> None:
    options = parse()
    found = ratio(options.repetitions)
    if found > MOST:
        raise SystemExit(
            f"A start is to take at most {MOST:g} times as long as the import of Dagster."
        )


def ratio(repetitions: int = 7) -> float:
    """Median of the pairs, each measured one right after the other."""
    pairs = [measured() for _ in range(repetitions)]
    launch, bare = (statistics.median(each) for each in zip(*pairs, strict=True))
    found = statistics.median(one / other for one, other in pairs)
    result = f"import dagster {bare:.2f} s, to the first call {launch:.2f} s, ratio {found:.2f}"
    print(f"{'start':16} {result}, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def measured() -> tuple[float, float]:
    """Of a run on the embedded default, and of the import right after it."""
    with (
        contest.upstream(fiches=FICHES) as address,
        tempfile.TemporaryDirectory(prefix="start-") as room,
    ):
        result = ours.run(ours.Place(Path(room), address), FICHES)
    return result.to_first_call, import_seconds()


def import_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import dagster"], check=True)
    return time.monotonic() - began


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
