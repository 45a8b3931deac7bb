"""Stores each measurement at once, so that a later call can continue an interrupted benchmark."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from competitors import Measurement
from evaluation import Bar

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks/results/measured.json"
# All measurements of one benchmark have the same values of these conditions.
SAME = ("machine", "code", "latency_seconds", "at_once")

# The number of fiches, the number of the repetition, and the name of the competitor.
Turn = tuple[int, int, str]
Document = dict[str, Any]  # JSON


def code() -> str:
    """Git's id of the tree of the package."""
    command = ("git", "rev-parse", "--short", "HEAD:automation_pipeline")
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


class SavedResults:
    """With `keep_stored`, the stored measurements are loaded. SystemExit: they were made under other
    conditions."""

    def __init__(self, conditions: Document, *, keep_stored: bool) -> None:
        self.conditions = conditions
        self.turns: dict[Turn, Measurement] = {}
        self.more: Document = {}
        if keep_stored and KEPT.exists():
            self._read(json.loads(KEPT.read_text()))

    def note(self, repetition: int, found: Measurement, load: float) -> None:
        """`load` is the machine's load at the end of the measurement, including its own."""
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
                f"{KEPT.name} was measured under other conditions ({', '.join(other)}). Start without --more."
            )
        self.conditions = kept["conditions"]
        self.more = kept["more"]
        for each in kept["turns"]:
            repetition = each.pop("repetition")
            found = Measurement(**each)
            self.turns[found.fiches, repetition, found.name] = found


def bars_in(more: Document) -> list[Bar]:
    return [Bar(**each) for each in more.get("component_bars", [])]
