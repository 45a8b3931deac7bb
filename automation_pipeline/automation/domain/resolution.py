"""What a selection came to: its days, its candidates, and what was kept and dropped of them, for the run to keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from automation_pipeline.automation.domain.filters import Candidate, Choice, EmptyReason, early
from automation_pipeline.automation.domain.selection import FicheSelection, SelectionMode
from automation_pipeline.fiches.domain.days import DayFailed

_FILTERS = {
    "groupes", "only_with_recordings", "only_unaudited", "use_rlm", "max_fiches", "max_recordings_per_fiche",
}  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """What is to be selected. Without days it is by hand, or finds nothing."""

    selection: FicheSelection
    days: tuple[date, ...] = ()

    @property
    def is_manual(self) -> bool:
        return self.selection.mode is SelectionMode.MANUAL


@dataclass(frozen=True)
class Resolution:
    """`failures` are the days whose sales list could not be asked for: their candidates are those known before."""

    wish: Wish
    candidates: Sequence[Candidate]
    failures: Sequence[DayFailed] = ()

    @cached_property
    def choice(self) -> Choice:
        return early(self.candidates, self.wish.selection)

    @property
    def kept(self) -> tuple[str, ...]:
        return self.choice.kept

    @property
    def empty_reason(self) -> EmptyReason | None:
        if self.kept:
            return None
        if self.wish.is_manual:
            return EmptyReason.NO_FICHES_FOUND if self.candidates else EmptyReason.NO_FICHES_MANUAL
        return EmptyReason.NO_FICHES_FOUND if self.wish.days else EmptyReason.NO_DATES

    def failed_days(self) -> list[dict[str, str]]:
        return [{"date": failure.day.isoformat(), "error": failure.error} for failure in self.failures]

    def summary(self) -> dict[str, object]:
        """Keys that do not change. `candidates` are those `selected` and `dropped`; of repeats each is one."""
        selection = self.wish.selection
        return {
            "mode": selection.mode,
            "dateRange": selection.date_range,
            "dates": [day.isoformat() for day in self.wish.days],
            "candidates": len(self.candidates),
            "selected": len(self.kept),
            "dropped": {str(reason): count for reason, count in self.choice.dropped.items()},
            "revalidation_failures": self.failed_days(),
            "filters": selection.model_dump(mode="json", by_alias=True, include=_FILTERS),
            "empty_reason": self.empty_reason,
        }
