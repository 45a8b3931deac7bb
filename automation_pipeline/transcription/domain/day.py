"""How the recordings of a day stand, and whether that is good enough."""

from collections.abc import Mapping
from dataclasses import dataclass

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

    @property
    def is_enough(self) -> bool:
        return self.coverage >= ENOUGH

    @property
    def says(self) -> str:
        return f"{self.transcribed} of {self.recordings} recordings of the day are transcribed."
