"""Reports: a run with its fiches, audits and quotations, and the quality of a day."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from automation_pipeline.audits.rules.days import FailingPoint
from automation_pipeline.automation.models.runs import (
    LedgerTally,
    OutcomeStatus,
    ReportedFiche,
    Run,
)
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.rules import never_requested


@dataclass(frozen=True)
class Quotation:
    texte: str
    speaker: str
    minutage: str
    recording_date: str
    recording_time: str


@dataclass(frozen=True)
class PointVerdict:
    point: str
    statut: str
    commentaire: str
    quotations: tuple[Quotation, ...]


@dataclass(frozen=True, kw_only=True)
class StepVerdict:
    """A step with an `error` could not be judged and has no verdict."""

    position: int
    name: str
    is_critical: bool
    conforme: str | None
    score: int | None
    weight: int
    commentaire: str
    error: str | None
    points: tuple[PointVerdict, ...]


@dataclass(frozen=True, kw_only=True)
class ReportedAudit:
    """Only the audits that the report shows in full have steps."""

    audit_id: int
    fiche_id: str
    configuration: str
    status: str
    niveau: str
    score: float | None
    critical_passed: int
    critical_total: int
    error: str | None
    steps: tuple[StepVerdict, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """`fiches` and `audits` are those that the report lists; `tally` and `audit_count` count all of
    them.

    `causes` are the reasons why fiches were ignored or failed, with the count of each.
    """

    run: Run
    schedule_name: str
    phases: tuple["ReportedPhase", ...]
    tally: LedgerTally
    causes: Mapping[tuple[OutcomeStatus, str], int]
    fiches: tuple[ReportedFiche, ...]
    audits: tuple[ReportedAudit, ...]
    audit_count: int


@dataclass(frozen=True)
class ReportedPhase:
    """A phase without an end is in progress, or the run was interrupted in it."""

    name: str
    begun_at: datetime
    ended_at: datetime | None


def phase_spans(
    started_at: datetime,
    selected_at: datetime | None,
    fetched_at: datetime | None,
    completed_at: datetime | None,
) -> tuple[ReportedPhase, ...]:
    """The phases that have started. Transcription and audits are one phase: a fiche is audited as
    soon as its own calls are transcribed."""
    marks = [
        ("selection", selected_at),
        ("fetching", fetched_at),
        ("transcribing and auditing", completed_at),
    ]
    spans: list[ReportedPhase] = []
    started: datetime | None = started_at
    for name, ended in marks:
        if started is None:
            break
        spans.append(ReportedPhase(name, started, ended))
        started = ended
    return tuple(spans)


REPORT_CHECK = "report_is_complete"


@dataclass(frozen=True)
class FicheSold:
    """`transcribed`: the fiche has a transcript to judge."""

    fiche_id: str
    groupe: str | None
    transcribed: bool


@dataclass(frozen=True)
class DayAudit:
    """The latest audit of a fiche by a configuration: one row of the day's file. An audit that has
    not ended has no score."""

    sales_date: date
    fiche_id: str
    groupe: str | None
    audit_config_id: int
    configuration: str
    audit_id: int
    version: int
    status: str
    niveau: str
    score: float | None
    is_compliant: bool | None
    critical_passed: int | None
    critical_total: int | None
    steps: int
    failed_steps: int | None
    error: str | None
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True)
class QualityDay:
    """`failures`: the number of the day's fiches that failed in their newest run, by cause."""

    day: date
    fiches: tuple[FicheSold, ...]
    audits: tuple[DayAudit, ...]
    failing_points: tuple[FailingPoint, ...]
    failures: Mapping[str, int]


def evaluate_report(rows: int | None, audits: int, *, asked: bool) -> DayFinding:
    """`rows` of the file, or None without a file; `audits` is the current number of the day's
    audits."""
    if not asked:
        return never_requested((REPORT_CHECK,))[0]
    if rows is None:
        return DayFinding(REPORT_CHECK, passed=False, message="The day has no report.", grave=True)
    return DayFinding(
        REPORT_CHECK,
        rows == audits,
        f"{rows} rows in the file, {audits} audits of the day.",
        grave=True,
    )
