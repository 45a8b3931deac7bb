"""What all competitors share: the process of the upstream, the timing of a process, and the checks
that a measurement must pass."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

HERE = Path(__file__).parent
STEPS = 2
FIRST_ID, MOST_RECORDINGS = 700_000_000, 3
# By number of recordings: the words of the transcripts, and the
# verdict.
OUTCOMES = {1: (517, "INSUFFISANT"), 2: (894, "INSUFFISANT"), 3: (1378, "EXCELLENT")}

Outcome = tuple[str, int, int, str]


class IncompleteRunError(Exception):
    """A competitor did not do all of the work, or made more concurrent calls than allowed. Its time
    does not count."""


@dataclass(frozen=True)
class ProcessResult:
    """Wall time of a process, CPU seconds of the process and its children, and its peak memory."""

    seconds: float
    busy_seconds: float
    megabytes: float
    output: str
    began_at: float


def recordings_of(fiche_id: int) -> int:
    return fiche_id % MOST_RECORDINGS + 1


def recordings_in_all(fiches: int) -> int:
    return sum(recordings_of(each) for each in range(FIRST_ID, FIRST_ID + fiches))


@contextmanager
def upstream(*, fiches: int, latency: float = 0.05, speech_per_minute: int = 0) -> Generator[str]:
    """Start an upstream for one competitor, and yield its URL."""
    options = ("--fiches", fiches, "--latency", latency, "--speech-per-minute", speech_per_minute)
    command = [sys.executable, str(HERE / "upstream.py"), *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://\S+", output)
            if found is None:
                raise SystemExit("The upstream did not start.")
            yield found[0]
        finally:
            process.terminate()


def timed(command: Sequence[str], variables: Mapping[str, str], log: Path) -> ProcessResult:
    """IncompleteRunError: the process failed; the message has the end of its output."""
    with log.open("w") as result:
        started_at, began_at = time.monotonic(), time.time()
        process = subprocess.Popen(
            command, env=dict(variables), stdout=result, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started_at
    process.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_text()
    if process.returncode != 0:
        raise IncompleteRunError(
            f"{' '.join(command[:3])} ended with {process.returncode}:\n{output[-3000:]}"
        )
    return ProcessResult(
        seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output, began_at
    )


def calls(address: str) -> dict:
    return httpx.get(f"{address}/calls").raise_for_status().json()


def check_calls(seen: Mapping, *, fiches: int, width: int) -> None:
    """Every item was requested exactly once, with at most `width` concurrent calls."""
    recordings = recordings_in_all(fiches)
    wanted = {
        "sales": 1,
        "details": fiches,
        "audio": recordings,
        "speech": recordings,
        "model": STEPS * fiches,
    }
    if seen["calls"] != wanted or seen["items"] != wanted:
        raise IncompleteRunError(
            f"The upstream saw {seen['calls']} of {seen['items']}, not {wanted}."
        )
    if seen["peak"] > width:
        raise IncompleteRunError(f"There were {seen['peak']} concurrent calls, more than {width}.")


def check_outcomes(found: Sequence[Outcome], fiches: int) -> None:
    """There is one row per fiche, with the expected words and verdict."""
    ids = range(FIRST_ID, FIRST_ID + fiches)
    wanted = {(str(each), recordings_of(each), *OUTCOMES[recordings_of(each)]) for each in ids}
    if len(found) != fiches or set(found) != wanted:
        odd = sorted(set(found) ^ wanted)[:3]
        raise IncompleteRunError(
            f"{len(found)} outcomes of {fiches} fiches; the first differences: {odd}."
        )


def to_first_call(seen: Mapping, ended: ProcessResult) -> float:
    """The time from the start of the process to its first call, by the clock of the machine."""
    return min(seen["first"].values()) - ended.began_at


def last_json(output: str) -> dict:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise IncompleteRunError(f"The output has no line of JSON:\n{output[-2000:]}")
    return json.loads(lines[-1])
