"""Measures a run whose only limit is the provider's cap on calls per minute: which share of the
ideal rate it reaches.

python benchmarks/rate.py [--fiches 250] [--per-minute 900] [--width 50] [--latency 0.05]

The client must keep the cap. The upstream refuses calls above it, and no call may be refused.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import harness
import pipeline_run

LEAST = 0.98


@dataclass(frozen=True)
class RateResult:
    """`ideal` and `took` are the seconds between the first and the last call of the capped
    provider."""

    ideal: float
    took: float
    refused: int

    @property
    def share(self) -> float:
        return self.ideal / self.took


def measure(*, fiches: int, per_minute: int, width: int = 50, latency: float = 0.05) -> RateResult:
    """IncompleteRunError: the run did not do all of the work, or a call exceeded the cap."""
    with (
        harness.upstream(fiches=fiches, latency=latency, speech_per_minute=per_minute) as address,
        tempfile.TemporaryDirectory(prefix="rate-") as folder,
    ):
        transcribing = width * 3 // 5
        capped = {
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": str(per_minute),
            # Under a cap, transcription and audits overlap and share the concurrent calls.
            "TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY": str(transcribing),
            "LLM_MAX_CONCURRENCY": str(width - transcribing),
        }
        pipeline_run.run(pipeline_run.RunSetup(Path(folder), address, width, more=capped), fiches)
        seen = harness.calls(address)
    refused = sum(seen["refused"].values())
    if refused:
        raise harness.IncompleteRunError(f"{refused} calls exceeded the cap.")
    calls = harness.recordings_in_all(fiches)
    # `last` is the time at which an answer ended.
    took = seen["last"]["speech"] - latency - seen["first"]["speech"]
    return RateResult((calls - 1) * 60 / per_minute, took, refused)


def main() -> None:
    options = parse()
    given = {"per_minute": options.per_minute, "width": options.width, "latency": options.latency}
    rated = measure(fiches=options.fiches, **given)
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.per_minute} calls per minute"
    )
    print(f"ideal {rated.ideal:6.1f} s")
    print(f"ours  {rated.took:6.1f} s")
    print(f"share {rated.share:6.1%}")
    if rated.share < LEAST:
        raise SystemExit(f"The run used less than {LEAST:.0%} of the cap.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fiches", type=int, default=250)
    parser.add_argument("--per-minute", type=int, default=900)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--latency", type=float, default=0.05)
    return parser.parse_args()


if __name__ == "__main__":
    main()
