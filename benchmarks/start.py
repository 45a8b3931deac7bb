"""Compares the start of `automation_run`, from the command to the first call of the CRM, with
`python -c "import dagster"`.

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

import harness
import pipeline_run

MOST = 2.5
FICHES = 10


def main() -> None:
    options = parse()
    found = ratio(options.repetitions)
    if found > MOST:
        raise SystemExit(
            f"The start takes more than {MOST:g} times as long as the import of Dagster."
        )


def ratio(repetitions: int = 7) -> float:
    """The median of the ratios of pairs that were measured one after the other."""
    pairs = [measured() for _ in range(repetitions)]
    launch, bare = (statistics.median(each) for each in zip(*pairs, strict=True))
    found = statistics.median(one / other for one, other in pairs)
    result = f"import dagster {bare:.2f} s, to the first call {launch:.2f} s, ratio {found:.2f}"
    print(f"{'start':16} {result}, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def measured() -> tuple[float, float]:
    """The seconds of a run on the embedded profile until its first call, and of the import."""
    with (
        harness.upstream(fiches=FICHES) as address,
        tempfile.TemporaryDirectory(prefix="start-") as folder,
    ):
        result = pipeline_run.run(pipeline_run.RunSetup(Path(folder), address), FICHES)
    return result.to_first_call, import_seconds()


def import_seconds() -> float:
    started_at = time.monotonic()
    subprocess.run([sys.executable, "-c", "import dagster"], check=True)
    return time.monotonic() - started_at


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
