"""The looks at whether the shop still has a run's prices: planned, asked for, done."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.reconciliation import FIRST_CHECKS, ReconciliationReport, worst
from automation_pipeline.pricing.domain.rule_check import MANUAL, RuleCheck
from automation_pipeline.pricing.store.last_checks import last_checks
from automation_pipeline.pricing.tables import CheckRow
from automation_pipeline.storage.bulk import upsert
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "rule_reconciliation"
ASKED_AGAIN_AFTER = timedelta(minutes=10)
MOST_AT_ONCE = 100

_KEY = ("rule_run_id", "name")
_FOUND = ("checked_at", "total_checked", "mismatches", "unverified", "worst", "report")


def plan_checks(session: Session, run_id: int, finished_at: datetime) -> None:
    """The early ones. A run that ends again, after a retry, is looked at again."""
    rows = [
        {"rule_run_id": run_id, "name": name, "due_at": finished_at + after, "requested_at": None, "checked_at": None}
        for name, after in FIRST_CHECKS
    ]
    upsert(session, CheckRow, rows, key=_KEY, fields=("due_at", "requested_at", "checked_at"))


def ask_for_due_checks(session: Session, now: datetime) -> Sequence[str]:
    """Keys of the requests. What was asked for a while ago and is not done yet, is asked for again."""
    is_silent = or_(CheckRow.requested_at.is_(None), CheckRow.requested_at <= now - ASKED_AGAIN_AFTER)
    due = (
        select(CheckRow)
        .where(CheckRow.checked_at.is_(None), CheckRow.due_at <= now, is_silent)
        .order_by(CheckRow.due_at, CheckRow.id)
        .limit(MOST_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    wishes: list[RunWish] = []
    for row in session.scalars(due):
        wishes.append(_wish(row, now))
        row.requested_at = now
    file_requests(session, wishes, now)
    return [wish.key for wish in wishes]


def keep_report(session: Session, name: str, reports: Sequence[ReconciliationReport], now: datetime) -> None:
    """Of one check of many runs."""
    rows = [
        {
            "rule_run_id": int(found.run_id),
            "name": name,
            "due_at": now,
            "checked_at": now,
            "total_checked": found.total_checked,
            "mismatches": found.mismatches,
            "unverified": len(found.unverified),
            "worst": worst(found),
            "report": as_document(found),
        }
        for found in reports
    ]
    upsert(session, CheckRow, rows, key=_KEY, fields=_FOUND)


def done_report(session: Session, run_id: int, name: str) -> ReconciliationReport | None:
    """What the check has found; None: it was not made yet."""
    document = session.scalar(
        select(CheckRow.report).where(
            CheckRow.rule_run_id == run_id, CheckRow.name == name, CheckRow.checked_at.is_not(None)
        )
    )
    return None if document is None else ReconciliationReport.model_validate(document)


def newest_telling_check(session: Session, run_id: int) -> RuleCheck | None:
    query = select(CheckRow).where(CheckRow.id.in_(last_checks(CheckRow.rule_run_id == run_id)))
    row = session.scalar(query)
    return None if row is None else _check(row)


def checks_of(session: Session, run_id: int) -> list[RuleCheck]:
    """In the order in which they are due; one a day for thirty days, the early ones, and those made by hand."""
    query = select(CheckRow).where(CheckRow.rule_run_id == run_id).order_by(CheckRow.due_at, CheckRow.id)
    return [_check(row) for row in session.scalars(query.execution_options(populate_existing=True))]


def next_manual_name(session: Session, run_id: int) -> str:
    by_hand = CheckRow.rule_run_id == run_id, CheckRow.name.startswith(MANUAL, autoescape=True)
    return f"{MANUAL}{(session.scalar(select(func.count(CheckRow.id)).where(*by_hand)) or 0) + 1}"


def _wish(row: CheckRow, now: datetime) -> RunWish:
    """A key is taken once only: whoever asks again, asks under another. A run that ended again has another due time."""
    again = "" if row.requested_at is None else f"-{round(now.timestamp())}"
    key = f"rule-check-{row.rule_run_id}-{row.name}-{round(row.due_at.timestamp())}{again}"
    tags = {"pricing/run_id": str(row.rule_run_id), "pricing/check": row.name}
    return RunWish(key, JOB, {"run_id": row.rule_run_id, "check": row.name}, tags)


def _check(row: CheckRow) -> RuleCheck:
    found = None if row.report is None else ReconciliationReport.model_validate(row.report)
    names = RuleCheck.model_fields.keys() - {"report"}
    return RuleCheck.model_validate({**{name: getattr(row, name) for name in names}, "report": found})
