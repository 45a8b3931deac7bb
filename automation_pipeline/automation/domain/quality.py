"""The quality of a day's calls: its fiches, the audits that count for them, and why fiches failed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from automation_pipeline.audits.domain.day import FailingPoint
from automation_pipeline.fiches.domain.days import Finding, never_asked

REPORT_CHECK = "report_is_complete"


@dataclass(frozen=True)
class FicheSold:
    """`transcribed`: there is something to judge."""

    fiche_id: str
    groupe: str | None
    transcribed: bool


@dataclass(frozen=True)
class DayAudit:
    """The audit that counts for a fiche and a configuration: one row of the day's file. No score before it ended."""

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
    """`failures`: how many fiches of the day failed in the newest run that had them, by cause."""

    day: date
    fiches: tuple[FicheSold, ...]
    audits: tuple[DayAudit, ...]
    failing_points: tuple[FailingPoint, ...]
    failures: Mapping[str, int]


def judge_report(rows: int | None, audits: int, *, asked: bool) -> Finding:
    """`rows` of the file, None where there is none; `audits` of the day as they are now."""
    if not asked:
        return never_asked((REPORT_CHECK,))[0]
    if rows is None:
        return Finding(REPORT_CHECK, passed=False, says="The day has no report.", grave=True)
    return Finding(REPORT_CHECK, rows == audits, f"{rows} rows in the file, {audits} audits of the day.", grave=True)
