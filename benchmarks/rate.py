"""A run whose only limit is the provider's cap on calls a minute: how much of the ideal time it
takes.

python benchmarks/rate.py [--fiches 250] [--per-minute 900] [--width 50] [--latency 0.05]

The cap is ours to keep, call by call; the upstream refuses what is above it in any minute, and no
call may be refused.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import contest
import ours

LEAST = 0.98


@dataclass(frozen=True)
class Rated:
    """`ideal` and `took` are seconds from the first call of the capped provider to its last."""

    ideal: float
    took: float
    refused: int

    @property
    def share(self) -> float:
        return self.ideal / self.took


def measure(*, fiches: int, per_minute: int, width: int = 50, latency: float = 0.05) -> Rated:
    """NotDoneError when the run is not whole, or when a call came above the cap."""
    with (
        contest.upstream(fiches=fiches, latency=latency, speech_per_minute=per_minute) as address,
        tempfile.TemporaryDirectory(prefix="rate-") as room,
    ):
        transcribing = width * 3 // 5
        capped = {
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": str(per_minute),
            # Under a cap, transcription and audits overlap: they share the calls at once.
            "TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY": str(transcribing),
            "LLM_MAX_CONCURRENCY": str(width - transcribing),
        }
        ours.run(ours.Place(Path(room), address, width, more=capped), fiches)
        seen = contest.calls(address)
    refused = sum(seen["refused"].values())
    if refused:
        raise contest.NotDoneError(f"{refused} calls came above the cap.")
    calls = contest.recordings_in_all(fiches)
    # `last` is the end of an answer.
    took = seen["last"]["speech"] - latency - seen["first"]["speech"]
    return Rated((calls - 1) * 60 / per_minute, took, refused)


def main() -> None:
    options = parse()
    given = {"per_minute": options.per_minute, "width": options.width, "latency": options.latency}
    rated = measure(fiches=options.fiches, **given)
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.per_minute} calls a minute"
    )
    print(f"ideal {rated.ideal:6.1f} s")
    print(f"ours  {rated.took:6.1f} s")
    print(f"share {rated.share:6.1%}")
    if rated.share < LEAST:
        raise SystemExit(f"The cap is to be used to at least {LEAST:.0%}.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fiches", type=int, default=250)
    parser.add_argument("--per-minute", type=int, default=900)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--latency", type=float, default=0.05)
    return parser.parse_args()


if __name__ == "__main__":
    main()
