"""What has been measured, kept as it comes: a benchmark that is ended, or whose time is over, can
be gone on with."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contestants import Measured
from standing import Bar

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks/results/measured.json"
# Measurements of one benchmark were taken under these, all of them.
SAME = ("machine", "code", "latency_seconds", "at_once")

# One contestant's turn: of how many fiches, the number of the repetition, and who.
Turn = tuple[int, int, str]
Document = dict[str, Any]  # JSON


def code() -> str:
    """What of ours was measured: the tree of the package, as git names it."""
    asked = ("git", "rev-parse", "--short", "HEAD:automation_pipeline")
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


class Notebook:
    """`goes_on`: with what is kept, if it was measured under the same conditions. SystemExit if it
    was not."""

    def __init__(self, conditions: Document, *, goes_on: bool) -> None:
        self.conditions = conditions
        self.turns: dict[Turn, Measured] = {}
        self.more: Document = {}
        if goes_on and KEPT.exists():
            self._read(json.loads(KEPT.read_text()))

    def note(self, repetition: int, found: Measured, load: float) -> None:
        """`load` is the machine's when it ended, its own with it."""
        self.turns[found.fiches, repetition, found.name] = found
        self.conditions["loads"].append(round(load, 1))
        self.keep()

    def keep(self) -> None:
        KEPT.parent.mkdir(exist_ok=True)
        turns = [{"repetition": turn[1], **asdict(found)} for turn, found in self.turns.items()]
        KEPT.write_text(
            json.dumps({"conditions": self.conditions, "turns": turns, "more": self.more}, indent=1)
            + "\n"
        )

    def _read(self, kept: Document) -> None:
        other = [name for name in SAME if kept["conditions"][name] != self.conditions[name]]
        if other:
            raise SystemExit(
                f"{KEPT.name} was measured under other conditions ({', '.join(other)}): begin anew."
            )
        self.conditions = kept["conditions"]
        self.more = kept["more"]
        for each in kept["turns"]:
            repetition = each.pop("repetition")
            found = Measured(**each)
            self.turns[found.fiches, repetition, found.name] = found


def bars_in(more: Document) -> list[Bar]:
    return [Bar(**each) for each in more.get("ground_bars", [])]
