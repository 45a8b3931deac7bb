"""What a run selects, and what becomes of each fiche: days, filters, batches, ledger moves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from math import ceil
from zoneinfo import ZoneInfo

from automation_pipeline.automation.models.runs import FicheStage, LedgerMove, OutcomeStatus, Reason
from automation_pipeline.automation.models.schedules import (
    DatePreset,
    DropReason,
    EmptyReason,
    FicheCandidate,
    FicheChoice,
    FicheSelection,
    SelectionMode,
)
from automation_pipeline.core.clock import days_between
from automation_pipeline.core.scheduling.zones import wall_time, zone
from automation_pipeline.fiches.models.days import DayFailed, crm_day
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FicheNotFound,
)

ONE_DAY = timedelta(days=1)


def days_of(selection: FicheSelection, now: datetime, timezone: ZoneInfo) -> tuple[date, ...]:
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
    today = wall_time(now, timezone).date()
    match selection.date_range:
        case DatePreset.LAST_24H:
            return days_between(today - ONE_DAY, today)
        case DatePreset.YESTERDAY:
            return (today - ONE_DAY,)
        case DatePreset.LAST_WEEK:
            return days_between(today - timedelta(weeks=1), today)
        case DatePreset.LAST_MONTH:
            last_of_month = today.replace(day=1) - ONE_DAY
            first = last_of_month.replace(day=min(today.day, last_of_month.day))
            return days_between(first, today)
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
    except ValueError:  # older rows may contain days that validation refuses today
        return ()
    return (first,) if last is None else days_between(first, min(last, today))


def filter_candidates(
    candidates: Sequence[FicheCandidate], selection: FicheSelection
) -> FicheChoice:
    """Keep the order of the candidates, and apply the limit last."""
    dropped = Counter(dict.fromkeys(DropReason, 0))
    firsts = {candidate.fiche_id: candidate for candidate in reversed(candidates)}
    dropped[DropReason.DUPLICATES] = len(candidates) - len(firsts)
    groupes = _selected_groupes(selection)
    wanted: list[str] = []
    reasons: dict[str, DropReason] = {}
    for fiche_id in dict.fromkeys(candidate.fiche_id for candidate in candidates):
        groupe = _normalised(firsts[fiche_id].groupe)
        if groupes and groupe and groupe not in groupes:
            reasons[fiche_id] = DropReason.GROUPE_NOT_SELECTED
        elif selection.only_unaudited and firsts[fiche_id].audited:
            reasons[fiche_id] = DropReason.AUDITED
        else:
            wanted.append(fiche_id)
    kept = tuple(wanted[: selection.max_fiches])
    reasons |= dict.fromkeys(wanted[len(kept) :], DropReason.OVER_MAX_FICHES)
    dropped.update(reasons.values())
    return FicheChoice(kept, dict(dropped), reasons)


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
    limit = selection.max_recordings_per_fiche or ceiling
    if limit and recordings > limit:
        return Reason.TOO_MANY_RECORDINGS, f"Too many recordings ({recordings} > {limit})"
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


def selection_request(selection: FicheSelection, at: datetime, timezone: str) -> SelectionRequest:
    """Relative days count back from `at`."""
    if selection.mode is SelectionMode.MANUAL:
        return SelectionRequest(selection)
    return SelectionRequest(selection, days_of(selection, at, zone(timezone)))


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


NOT_FOUND_REASON = "Fiche not found (404)"


def failed_move(fiche_id: str, reason: Reason, error: str) -> LedgerMove:
    return LedgerMove(
        fiche_id, OutcomeStatus.FAILED, error=error, reason=reason, stage=FicheStage.FETCHED
    )


def ignored_move(
    fiche_id: str, reason: Reason, message: str, recordings: int | None = None
) -> LedgerMove:
    return LedgerMove(
        fiche_id,
        OutcomeStatus.IGNORED,
        ignore_reason=message,
        recordings_count=recordings,
        reason=reason,
    )


def move_after_fetch(
    outcome: DetailsFetched | DetailsKnown | FicheNotFound,
    groupe: str | None,
    selection: FicheSelection,
    ceiling: int,
) -> LedgerMove:
    """`groupe` is that of the mirror, for details that were known before. `ceiling`: see
    `ignore_reason`."""
    fiche_id = outcome.fiche_id
    match outcome:
        case FicheNotFound():
            return ignored_move(fiche_id, Reason.NOT_FOUND, NOT_FOUND_REASON)
        case DetailsFetched(_, details):
            groupe, recordings = details.information.groupe, len(details.recordings)
        case DetailsKnown(_, recordings):
            pass
    unwanted = ignore_reason(groupe, recordings, selection, ceiling)
    if unwanted is not None:
        return ignored_move(fiche_id, *unwanted, recordings)
    return LedgerMove(
        fiche_id, OutcomeStatus.PENDING, recordings_count=recordings, stage=FicheStage.FETCHED
    )


INCOMPLETE_TRANSCRIPTION, INCOMPLETE_AUDIT = "Transcription incomplete", "Audit incomplete"
TIMED_OUT = " (timeout/stall)"
NO_CONFIG = "No audit configs resolved"


def work_key(run_id: int, *work: object, attempt: int = 0) -> str:
    """For example, `automation-3-audit-1900417-12-retry-1`."""
    retry = ("retry", attempt) if attempt else ()
    return "-".join(map(str, ("automation", run_id, *work, *retry)))


@dataclass(frozen=True)
class ConfigAuditResult:
    """The result of the audit by one configuration. `completed` is None if the audit has neither a
    grade nor a failure: it did not end in time, or a step could not be judged."""

    config_id: int
    completed: bool | None
    error: str | None = None
    timed_out: bool = False


def move_after_transcription(fiche_id: str, cause: str | None, *, timed_out: bool) -> LedgerMove:
    """The move of a fiche that still lacks transcripts after the last retry."""
    message = incomplete_error(INCOMPLETE_TRANSCRIPTION, cause, timed_out=timed_out)
    return failed_move(fiche_id, Reason.TRANSCRIPTION_INCOMPLETE, message)


def incomplete_error(what: str, cause: str | None, *, timed_out: bool) -> str:
    """The text names timeout/stall only if the time ran out or no other cause is known."""
    start = what + TIMED_OUT if timed_out or not cause else what
    return f"{start}: {cause}" if cause else start


def move_after_audits(fiche_id: str, ends: Sequence[ConfigAuditResult]) -> LedgerMove:
    """Failed with the error of a failed audit, or with what is missing if an audit has no grade;
    otherwise successful."""
    ended = sum(end.completed is not None for end in ends)
    failures = [end for end in ends if end.completed is False]
    if failures:
        error = next((end.error for end in failures if end.error), None)
        message = error or f"Audit failed ({len(failures)}/{len(ends)} config(s))"
        return replace(failed_move(fiche_id, Reason.AUDIT_FAILED, message), audits=ended)
    if ended < len(ends):
        cause = next((end.error for end in ends if end.completed is None and end.error), None)
        cause = cause and cause.removeprefix(f"{INCOMPLETE_AUDIT}: ")
        message = incomplete_error(
            INCOMPLETE_AUDIT, cause, timed_out=any(end.timed_out for end in ends)
        )
        return replace(failed_move(fiche_id, Reason.AUDIT_INCOMPLETE, message), audits=ended)
    return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED, audits=ended)
