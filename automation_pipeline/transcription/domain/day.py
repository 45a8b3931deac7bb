"""How the recordings of a day stand, and whether that is good enough."""

from collections.abc import Mapping
from dataclasses import dataclass

from automation_pipeline.fiches.domain.days import Finding, never_asked

ENOUGH = 0.95
CHECK = "transcript_coverage"


@dataclass(frozen=True)
class DayTranscripts:
    """`failures` are the causes for which recordings of the day were given up, with how many each."""

    recordings: int
    transcribed: int
    minutes: float
    failures: Mapping[str, int]

    @property
    def coverage(self) -> float:
        return self.transcribed / self.recordings if self.recordings else 1.0


def judge_transcripts(day: DayTranscripts, *, asked: bool) -> Finding:
    """Without a sales list of the day (`asked`), that no transcripts are missing says nothing."""
    if not asked:
        return never_asked((CHECK,))[0]
    says = f"{day.transcribed} of {day.recordings} recordings of the day are transcribed."
    return Finding(CHECK, day.coverage >= ENOUGH, says)
