"""What a run selects: days, filters, the result, and the size of its batches."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from math import ceil
from zoneinfo import ZoneInfo

from automation_pipeline.automation.models.runs import Reason
from automation_pipeline.automation.models.selections import (
    DatePreset,
    DropReason,
    EmptyReason,
    FicheCandidate,
    FicheChoice,
    FicheSelection,
    SelectionMode,
    split_ids,
)
from automation_pipeline.core.clock import days_between
from automation_pipeline.core.scheduling.zones import wall_time
from automation_pipeline.fiches.models.days import DayFailed, crm_day

ONE_DAY = timedelta(days=1)


def days_of(selection: FicheSelection, now: datetime, zone: ZoneInfo) -> tuple[date, ...]:
    """Ascending, each once.

    | dateRange  | first day                                           | last day                           | days     |
    |------------|-----------------------------------------------------|------------------------------------|----------|
    | last_24h   | the day before today                                | today                              | 2        |
    | yesterday  | the day before today                                | the same                           | 1        |
    | last_week  | seven days before today                             | today                              | 8        |
    | last_month | today's number in the month before, or its last day | today                              | 29 to 32 |
    | custom     | customStartDate                                     | customEndDate, today at the latest | 0 and up |
    | (none)     |                                                     |                                    | 0        |

    `custom` without an end date is its first day alone. Unreadable dates, an end without a start and a
    start after the end give no days.
    """
    today = wall_time(now, zone).date()
    match selection.date_range:
        case DatePreset.LAST_24H:
            return days_between(today - ONE_DAY, today)
        case DatePreset.YESTERDAY:
            return (today - ONE_DAY,)
        case DatePreset.LAST_WEEK:
            return days_between(today - timedelta(weeks=1), today)
        case DatePreset.LAST_MONTH:
            return days_between(_a_month_before(today), today)
        case DatePreset.CUSTOM:
            return _custom_days(selection, today)
        case None:
            return ()


def _custom_days(selection: FicheSelection, today: date) -> tuple[date, ...]:
    if not selection.custom_start_date:
        return ()
    try:
        first = crm_day(selection.custom_start_date)
        last = crm_day(selection.custom_end_date) if selection.custom_end_date else None
    except (
        ValueError
    ):  # validation refuses it when a schedule is saved; older rows may contain anything
        return ()
    return (first,) if last is None else days_between(first, min(last, today))


def _a_month_before(day: date) -> date:
    last_of_month = day.replace(day=1) - ONE_DAY
    return last_of_month.replace(day=min(day.day, last_of_month.day))


def named_ids(selection: FicheSelection) -> list[str]:
    """The ids of a stored selection, in which one entry may hold several."""
    return split_ids(selection.fiche_ids)


def filter_candidates(
    candidates: Sequence[FicheCandidate], selection: FicheSelection
) -> FicheChoice:
    """Keep the order of the candidates, and apply the limit last."""
    dropped = Counter(dict.fromkeys(DropReason, 0))
    firsts = {candidate.fiche_id: candidate for candidate in reversed(candidates)}
    dropped[DropReason.DUPLICATES] = len(candidates) - len(firsts)
    wanted: list[str] = []
    reasons: dict[str, DropReason] = {}
    for fiche_id in dict.fromkeys(candidate.fiche_id for candidate in candidates):
        reason = _unwanted(firsts[fiche_id], selection)
        if reason is None:
            wanted.append(fiche_id)
        else:
            dropped[reason] += 1
            reasons[fiche_id] = reason
    kept = tuple(wanted[: selection.max_fiches])
    dropped[DropReason.OVER_MAX_FICHES] = len(wanted) - len(kept)
    reasons |= dict.fromkeys(wanted[len(kept) :], DropReason.OVER_MAX_FICHES)
    return FicheChoice(kept, dict(dropped), reasons)


def _unwanted(candidate: FicheCandidate, selection: FicheSelection) -> DropReason | None:
    groupe = _normalised(candidate.groupe)
    if selection.groupes and groupe and groupe not in _selected_groupes(selection):
        return DropReason.GROUPE_NOT_SELECTED
    return DropReason.AUDITED if selection.only_unaudited and candidate.audited else None


def ignore_reason(
    groupe: str | None, recordings: int, selection: FicheSelection, ceiling: int
) -> tuple[Reason, str] | None:
    """Why a fiche with fetched details is ignored, as a key and a text. None: the fiche continues.

    `ceiling` is the maximum number of recordings where the selection sets none; 0: no limit.
    """
    if selection.groupes:
        result = _normalised(groupe)
        if not result:
            return Reason.MISSING_GROUPE, "Missing groupe"
        if result not in _selected_groupes(selection):
            return Reason.GROUPE_NOT_SELECTED, f"Groupe not selected ({result})"
    most = selection.max_recordings_per_fiche or ceiling
    if most and recordings > most:
        return Reason.TOO_MANY_RECORDINGS, f"Too many recordings ({recordings} > {most})"
    if selection.only_with_recordings and recordings == 0:
        return Reason.NO_RECORDINGS, "No recordings"
    return None


def _normalised(groupe: str | None) -> str:
    return (groupe or "").strip()


def _selected_groupes(selection: FicheSelection) -> set[str]:
    return {_normalised(groupe) for groupe in selection.groupes}


_FILTERS = {
    "groupes", "only_with_recordings", "only_unaudited", "use_rlm", "max_fiches", "max_recordings_per_fiche",
}  # fmt: skip


@dataclass(frozen=True)
class SelectionRequest:
    """What to select. Without days, the selection is manual or finds nothing."""

    selection: FicheSelection
    days: tuple[date, ...] = ()

    @property
    def is_manual(self) -> bool:
        return self.selection.mode is SelectionMode.MANUAL


@dataclass(frozen=True)
class SelectionResult:
    """`failures` are the days whose sales list the CRM did not return: their candidates come from
    the mirror."""

    request: SelectionRequest
    candidates: Sequence[FicheCandidate]
    failures: Sequence[DayFailed] = ()

    @cached_property
    def choice(self) -> FicheChoice:
        return filter_candidates(self.candidates, self.request.selection)

    @property
    def kept(self) -> tuple[str, ...]:
        return self.choice.kept

    @property
    def empty_reason(self) -> EmptyReason | None:
        if self.kept:
            return None
        if self.request.is_manual:
            return EmptyReason.NO_FICHES_FOUND if self.candidates else EmptyReason.NO_FICHES_MANUAL
        return EmptyReason.NO_FICHES_FOUND if self.request.days else EmptyReason.NO_DATES

    def failed_days(self) -> list[dict[str, str]]:
        return [
            {"date": failure.day.isoformat(), "error": failure.error} for failure in self.failures
        ]

    def summary(self) -> dict[str, object]:
        """Counts by stable keys. `candidates` is the sum of `selected` and `dropped`; each repeat
        counts as one."""
        selection = self.request.selection
        return {
            "mode": selection.mode,
            "dateRange": selection.date_range,
            "dates": [day.isoformat() for day in self.request.days],
            "candidates": len(self.candidates),
            "selected": len(self.kept),
            "dropped": {str(reason): count for reason, count in self.choice.dropped.items()},
            "revalidation_failures": self.failed_days(),
            "filters": selection.model_dump(mode="json", by_alias=True, include=_FILTERS),
            "empty_reason": self.empty_reason,
        }


LARGEST_IN_PROCESS = 1_000
SMALLEST_SHARED = 50
LARGEST_SHARED = 500
MOST_BATCHES = 40
# The upper bound for any number of fiches: a step that is lost with its host, or runs twice, must
# stay small.
LARGEST_OF_SEVERAL = 1_000
BATCHES_PER_PROCESS = 4
# If the speech provider's rate limit determines the length of a run in one process, a batch takes
# about this long, and there are at most this many batches: each boundary loses a second or two of
# the limit.
CAPPED_SECONDS = 10
MOST_CAPPED_BATCHES = 8
SMALLEST_CAPPED = 10
RECORDINGS_PER_FICHE = 2


def batch_size(fiches: int, processes: int, recordings_per_minute: int | None = None) -> int:
    """Fiches per batch. Each boundary drains the concurrency and writes events, so batches must not
    be too small. With a limit on recordings, one process audits a batch while it transcribes the
    next one."""
    at_least = ceil(fiches / MOST_BATCHES)
    if processes > 1:
        share = ceil(fiches / (processes * BATCHES_PER_PROCESS))
        wanted = max(at_least, min(max(share, SMALLEST_SHARED), LARGEST_SHARED))
        return min(wanted, LARGEST_OF_SEVERAL)
    if recordings_per_minute is None:
        return max(at_least, LARGEST_IN_PROCESS)
    capped = ceil(recordings_per_minute * CAPPED_SECONDS / 60 / RECORDINGS_PER_FICHE)
    wanted = max(capped, ceil(fiches / MOST_CAPPED_BATCHES), SMALLEST_CAPPED)
    return max(at_least, min(wanted, LARGEST_IN_PROCESS))
