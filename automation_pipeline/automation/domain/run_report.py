"""A run as its report tells it: counters, phases, fiches with why, and audits down to their quotations."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation.domain.run import OutcomeStatus, Run, Tally


@dataclass(frozen=True, kw_only=True)
class ReportedFiche:
    """`why` it was ignored or has failed, in words; `reason` is the key to that."""

    fiche_id: str
    groupe: str | None
    status: OutcomeStatus
    reason: str | None
    why: str | None
    recordings: int | None


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
    """Steps of those audits only that are told in full."""

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
    """`fiches` and `audits` are as many as are told; `tally` and `audit_count` count them all.

    `causes` are the reasons for which fiches were ignored or have failed, with how many each.
    """

    run: Run
    schedule_name: str
    phases: tuple["PhaseSpan", ...]
    tally: Tally
    causes: Mapping[tuple[OutcomeStatus, str], int]
    fiches: tuple[ReportedFiche, ...]
    audits: tuple[ReportedAudit, ...]
    audit_count: int


@dataclass(frozen=True)
class PhaseSpan:
    """Without an end while it lasts, or if the run broke off in it."""

    name: str
    begun_at: datetime
    ended_at: datetime | None


def phase_spans(
    started_at: datetime, selected_at: datetime | None, fetched_at: datetime | None, completed_at: datetime | None
) -> tuple[PhaseSpan, ...]:
    """The phases that have begun. Transcripts and audits are one: a fiche is audited when its own calls are ready."""
    marks = [("selection", selected_at), ("fetching", fetched_at), ("transcribing and auditing", completed_at)]
    spans: list[PhaseSpan] = []
    begun: datetime | None = started_at
    for name, ended in marks:
        if begun is None:
            break
        spans.append(PhaseSpan(name, begun, ended))
        begun = ended
    return tuple(spans)
