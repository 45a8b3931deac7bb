"""Where the time of an attempt at a run went: a phase lasts until another one is entered for the first time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from automation_pipeline.automation.domain.run import Phase


@dataclass(frozen=True)
class PhaseEntry:
    phase: Phase
    entered_at: datetime


@dataclass(frozen=True)
class PhaseLength:
    phase: Phase
    seconds: float


def phase_lengths(entries: Sequence[PhaseEntry], until: datetime) -> list[PhaseLength]:
    """In the order of entry; those entered at one moment in the order that phases have."""
    order = list(Phase)
    entered = sorted(entries, key=lambda entry: (entry.entered_at, order.index(entry.phase)))
    ends = [*(after.entered_at for _, after in pairwise(entered)), until]
    return [
        PhaseLength(entry.phase, max((end - entry.entered_at).total_seconds(), 0.0))
        for entry, end in zip(entered, ends, strict=False)
    ]
