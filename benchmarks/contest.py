"""What every contestant is measured with: the upstream's process, a process under the clock, and
what must be true of the calls before a time counts."""

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
# What an outcome holds for each number of recordings: the words of their transcripts, and the
# verdict.
OUTCOMES = {1: (517, "INSUFFISANT"), 2: (894, "INSUFFISANT"), 3: (1378, "EXCELLENT")}

Outcome = tuple[str, int, int, str]


class NotDoneError(Exception):
    """A contestant did less than it should, or otherwise than agreed: its time does not count."""


@dataclass(frozen=True)
class Ended:
    """Wall seconds from the process's start to its end, processor seconds with those of its
    children, and its own peak of memory."""

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
    """Its address. It is made anew for each contestant and is idle until its first call."""
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


def timed(command: Sequence[str], variables: Mapping[str, str], log: Path) -> Ended:
    """NotDoneError, with the end of what it said, when the process fails."""
    with log.open("w") as result:
        began, began_at = time.monotonic(), time.time()
        process = subprocess.Popen(
            command, env=dict(variables), stdout=result, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_text()
    if process.returncode != 0:
        raise NotDoneError(
            f"{' '.join(command[:3])} ended with {process.returncode}:\n{output[-3000:]}"
        )
    return Ended(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output, began_at)


def calls(address: str) -> dict:
    return httpx.get(f"{address}/calls").raise_for_status().json()


def check_calls(seen: Mapping, *, fiches: int, width: int) -> None:
    """Each item asked for exactly once, and never more at once than agreed."""
    recordings = recordings_in_all(fiches)
    wanted = {
        "sales": 1,
        "details": fiches,
        "audio": recordings,
        "speech": recordings,
        "model": STEPS * fiches,
    }
    if seen["calls"] != wanted or seen["items"] != wanted:
        raise NotDoneError(f"The upstream saw {seen['calls']} of {seen['items']}, not {wanted}.")
    if seen["peak"] > width:
        raise NotDoneError(f"There were {seen['peak']} calls at once, {width} is the most.")


def check_outcomes(found: Sequence[Outcome], fiches: int) -> None:
    """One row a fiche, and each what its transcripts and judgements make it."""
    ids = range(FIRST_ID, FIRST_ID + fiches)
    wanted = {(str(each), recordings_of(each), *OUTCOMES[recordings_of(each)]) for each in ids}
    if len(found) != fiches or set(found) != wanted:
        odd = sorted(set(found) ^ wanted)[:3]
        raise NotDoneError(f"{len(found)} outcomes of {fiches} fiches; they differ first in {odd}.")


def to_first_call(seen: Mapping, ended: Ended) -> float:
    """From the process's start to its first call, both on the machine's own clock."""
    return min(seen["first"].values()) - ended.began_at


def last_json(output: str) -> dict:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise NotDoneError(f"No line of JSON was said:\n{output[-2000:]}")
    return json.loads(lines[-1])
