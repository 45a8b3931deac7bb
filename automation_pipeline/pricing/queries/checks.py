"""Queries about checks against the shop: due checks, reports, prices that are expected, repairs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, and_, exists, func, insert, or_, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.events import mismatch_key
from automation_pipeline.pricing.models.history import (
    MANUAL_PREFIX,
    Mismatch,
    PriceReading,
    ReconciliationReport,
    RuleCheck,
)
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import (
    FIRST_TARGET_STATE,
    OPEN_TARGET_STATES,
    RuleTrigger,
    TargetState,
)
from automation_pipeline.pricing.models.shop import Price, price_document, price_of
from automation_pipeline.pricing.queries.runs import LIVE_RUN_STATES, add_run, locked_run
from automation_pipeline.pricing.rules.monitoring import (
    WATCHED_FOR,
    in_daily_pass,
    reconciliation_report,
    worst_severity,
)
from automation_pipeline.pricing.tables import RuleCheckRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import among, upsert


def is_conclusive() -> ColumnElement[bool]:
    """It read a price, or found that the run has none left in the shop. What could not be read says
    nothing."""
    has_none_left = and_(RuleCheckRow.total_checked == 0, RuleCheckRow.unverified == 0)
    return and_(
        RuleCheckRow.checked_at.is_not(None), or_(RuleCheckRow.total_checked > 0, has_none_left)
    )


def last_checks(*of: ColumnElement[bool]) -> Select[tuple[int]]:
    """The ids of the last one of each run, of those that are asked about. A check made again keeps
    its old id."""
    newest_first = RuleCheckRow.checked_at.desc(), RuleCheckRow.id.desc()
    place = (
        func.row_number()
        .over(partition_by=RuleCheckRow.rule_run_id, order_by=newest_first)
        .label("place")
    )
    placed = select(RuleCheckRow.id, place).where(is_conclusive(), *of).subquery()
    return select(placed.c.id).where(placed.c.place == 1)


CHECK_JOB = "rule_reconciliation"
REQUEST_AGAIN_AFTER = timedelta(minutes=10)
MAX_CHECKS = 100

_KEY = ("rule_run_id", "name")
_FOUND = ("checked_at", "total_checked", "mismatches", "unverified", "worst", "report")


def file_due_checks(session: Session, now: datetime) -> Sequence[str]:
    """Keys of the requests. What was asked for a while ago and is not done yet, is asked for
    again."""
    is_silent = or_(
        RuleCheckRow.requested_at.is_(None), RuleCheckRow.requested_at <= now - REQUEST_AGAIN_AFTER
    )
    due = (
        select(RuleCheckRow)
        .where(RuleCheckRow.checked_at.is_(None), RuleCheckRow.due_at <= now, is_silent)
        .order_by(RuleCheckRow.due_at, RuleCheckRow.id)
        .limit(MAX_CHECKS)
        .with_for_update(skip_locked=True)
    )
    wishes: list[NewRunRequest] = []
    for row in session.scalars(due):
        wishes.append(_check_request(row, now))
        row.requested_at = now
    file_requests(session, wishes, now)
    return [wish.key for wish in wishes]


def save_reports(
    session: Session, name: str, reports: Sequence[ReconciliationReport], now: datetime
) -> None:
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
            "worst": worst_severity(found),
            "report": as_document(found),
        }
        for found in reports
    ]
    upsert(session, RuleCheckRow, rows, key=_KEY, fields=_FOUND)


def done_report(session: Session, run_id: int, name: str) -> ReconciliationReport | None:
    """What the check has found; None: it was not made yet."""
    document = session.scalar(
        select(RuleCheckRow.report).where(
            RuleCheckRow.rule_run_id == run_id,
            RuleCheckRow.name == name,
            RuleCheckRow.checked_at.is_not(None),
        )
    )
    return None if document is None else ReconciliationReport.model_validate(document)


def latest_conclusive_check(session: Session, run_id: int) -> RuleCheck | None:
    query = select(RuleCheckRow).where(
        RuleCheckRow.id.in_(last_checks(RuleCheckRow.rule_run_id == run_id))
    )
    row = session.scalar(query)
    return None if row is None else _check(row)


def checks_of(session: Session, run_id: int) -> list[RuleCheck]:
    """In the order in which they are due; one a day for thirty days, the early ones, and those made
    by hand."""
    query = (
        select(RuleCheckRow)
        .where(RuleCheckRow.rule_run_id == run_id)
        .order_by(RuleCheckRow.due_at, RuleCheckRow.id)
    )
    return [_check(row) for row in session.scalars(query.execution_options(populate_existing=True))]


def next_manual_name(session: Session, run_id: int) -> str:
    by_hand = (
        RuleCheckRow.rule_run_id == run_id,
        RuleCheckRow.name.startswith(MANUAL_PREFIX, autoescape=True),
    )
    return f"{MANUAL_PREFIX}{(session.scalar(select(func.count(RuleCheckRow.id)).where(*by_hand)) or 0) + 1}"


def _check_request(row: RuleCheckRow, now: datetime) -> NewRunRequest:
    """A key is taken once only: whoever asks again, asks under another. A run that ended again has
    another due time."""
    again = "" if row.requested_at is None else f"-{round(now.timestamp())}"
    key = f"rule-check-{row.rule_run_id}-{row.name}-{round(row.due_at.timestamp())}{again}"
    tags = {"pricing/run_id": str(row.rule_run_id), "pricing/check": row.name}
    return NewRunRequest(key, CHECK_JOB, {"run_id": row.rule_run_id, "check": row.name}, tags)


def _check(row: RuleCheckRow) -> RuleCheck:
    found = None if row.report is None else ReconciliationReport.model_validate(row.report)
    names = RuleCheck.model_fields.keys() - {"report"}
    return RuleCheck.model_validate(
        {**{name: getattr(row, name) for name in names}, "report": found}
    )


Target = RuleTargetRow


@dataclass(frozen=True)
class LiveTarget:
    id: int
    run_id: int
    variant_id: str
    sku_id: str | None
    expected: Price


def live_targets(session: Session, run_ids: Collection[int]) -> list[LiveTarget]:
    """The applied ones of these runs that no run has applied over since."""
    later = aliased(Target)
    is_later = or_(
        later.applied_at > Target.applied_at,
        and_(later.applied_at == Target.applied_at, later.id > Target.id),
    )
    is_same = and_(
        later.shop == Target.shop,
        later.variant_id == Target.variant_id,
        later.currency == Target.currency,
    )
    query = (
        select(Target.id, Target.rule_run_id, Target.variant_id, Target.sku_id, Target.after_json)
        .where(among(session, Target.rule_run_id, run_ids), Target.status == TargetState.APPLIED)
        .where(~exists().where(is_same, later.status == TargetState.APPLIED, is_later))
        .order_by(Target.id)
    )
    return [
        LiveTarget(id_, run_id, variant_id, sku_id, price_of(after))
        for id_, run_id, variant_id, sku_id, after in session.execute(query).tuples()
        if variant_id is not None
    ]


def variants_in_flux(session: Session, shop: str, variant_ids: Collection[str]) -> set[str]:
    """Those that somebody is writing now, has written with an unknown outcome, or is about to take
    back."""
    is_unknown = and_(Target.outcome_unknown, Target.status.in_(sorted(OPEN_TARGET_STATES)))
    is_wanted_back = and_(Target.is_wished, Target.status == TargetState.APPLIED)
    query = select(Target.variant_id).where(
        Target.shop == shop,
        among(session, Target.variant_id, variant_ids),
        or_(Target.is_writing, is_unknown, is_wanted_back),
    )
    return {variant_id for variant_id in session.scalars(query) if variant_id is not None}


def runs_to_check(session: Session, shop: str, day: str, now: datetime) -> Sequence[int]:
    """Those of the daily pass that were not looked at on this day."""
    is_done = exists().where(
        RuleCheckRow.rule_run_id == RuleRunRow.id,
        RuleCheckRow.name == day,
        RuleCheckRow.checked_at.is_not(None),
    )
    query = select(RuleRunRow.id, RuleRunRow.finished_at).where(
        RuleRunRow.shop == shop,
        RuleRunRow.status.in_(sorted(LIVE_RUN_STATES)),
        RuleRunRow.finished_at >= now - WATCHED_FOR,
        ~is_done,
    )
    ended = session.execute(query.order_by(RuleRunRow.id)).tuples()
    return [run_id for run_id, at in ended if at is not None and in_daily_pass(at, now)]


_IN_FLUX = "its price was being changed meanwhile"

# By variant, its price in the shop; or why that could not be read.
PricesByVariant = Mapping[str, Price | str]


def save_findings(
    session: Session,
    name: str,
    looked_at: Mapping[int, Sequence[LiveTarget]],
    seen: PricesByVariant,
    shop: str,
    now: datetime,
) -> list[ReconciliationReport]:
    """By run, the targets whose prices were looked up. Those that were taken back or applied over
    meanwhile are out."""
    still = {target.id for target in live_targets(session, looked_at)}
    left = {
        run: [target for target in targets if target.id in still]
        for run, targets in looked_at.items()
    }
    variants = [target.variant_id for targets in left.values() for target in targets]
    in_flux = variants_in_flux(session, shop, variants)
    told: PricesByVariant = {**seen, **dict.fromkeys(in_flux, _IN_FLUX)}
    reports = [
        reconciliation_report(str(run), [_reading(one, told) for one in targets], now)
        for run, targets in left.items()
    ]
    save_reports(session, name, reports, now)
    enqueue(session, [event for found in reports for event in _events(found, name, now)])
    return reports


def _reading(target: LiveTarget, seen: PricesByVariant) -> PriceReading:
    found = seen[target.variant_id]
    read = PriceReading(
        target_id=str(target.id), sku_id=target.sku_id, expected=target.expected, actual=None
    )
    return replace(read, reason=found) if isinstance(found, str) else replace(read, actual=found)


def _events(found: ReconciliationReport, name: str, now: datetime) -> Iterator[Event]:
    for one in found.details:
        payload: dict[str, object] = {
            "targetId": one.target_id,
            "runId": found.run_id,
            "expected": one.expected_price,
            "actual": one.actual_price,
            "currency": one.currency,
            "actualCurrency": one.actual_currency,
            "difference": one.difference,
            "severity": one.severity,
        }
        key = mismatch_key(found.run_id, one.target_id, name)
        aggregate = f"rule-run-{found.run_id}"
        yield Event(
            TENANT, key, "automation.reconciliation.mismatch", "pricing", aggregate, now, payload
        )


@dataclass(frozen=True)
class _RuleVersion:
    """The rule as it was for the run that is repaired: its word on drift counts."""

    id: int
    project_id: str
    version: int
    version_hash: str


def still_to_repair(
    session: Session, run: RuleRunRow, mismatches: Mapping[int, Mismatch]
) -> list[tuple[RuleTargetRow, Mismatch]]:
    """Those whose price is still expected to stand, and that nobody is changing now."""
    standing = {target.id: target.variant_id for target in live_targets(session, [run.id])}
    in_flux = variants_in_flux(
        session, run.shop, [standing[id_] for id_ in mismatches if id_ in standing]
    )
    wanted = [id_ for id_ in mismatches if id_ in standing and standing[id_] not in in_flux]
    rows = session.scalars(
        select(RuleTargetRow)
        .where(among(session, RuleTargetRow.id, wanted))
        .order_by(RuleTargetRow.id)
    )
    return [(row, mismatches[row.id]) for row in rows]


def add_repair(
    session: Session,
    run: RuleRunRow,
    check: str,
    wrong: list[tuple[RuleTargetRow, Mismatch]],
    actor: str,
    now: datetime,
) -> int:
    """The new run. The rule's rest after its last run is not waited for."""
    then = _RuleVersion(run.rule_id, run.project_id, run.rule_version, run.rule_version_hash)
    repair_id = add_run(
        session,
        then,
        shop=run.shop,
        trigger=RuleTrigger.REPAIR,
        actor=actor,
        now=now,
        parent_run_id=run.id,
        force=True,
    )
    rows = [{"rule_run_id": repair_id, **_repair_columns(target, found)} for target, found in wrong]
    session.connection().execute(insert(RuleTargetRow), rows)
    repair = locked_run(session, repair_id)
    repair.matched = repair.total_targets = len(rows)
    repair.explain_json = {
        "matchedProducts": len({target.product_id for target, _ in wrong}),
        "appliedTargets": len(rows),
        "skippedTargets": 0,
        "repairs": {"runId": str(run.id), "check": check},
    }
    repair.previewed_at = repair.updated_at = now
    session.flush()
    return repair_id


def _repair_columns(target: RuleTargetRow, found: Mismatch) -> dict[str, object]:
    """Compare-at prices were not looked at, and are left alone."""
    return {
        "tenant_id": target.tenant_id,
        "project_id": target.project_id,
        "shop": target.shop,
        "product_id": target.product_id,
        "variant_id": target.variant_id,
        "sku_id": target.sku_id,
        "title": target.title,
        "currency": found.currency,
        "before_json": price_document(Price(found.actual_price, found.currency)),
        "after_json": price_document(Price(found.expected_price, found.currency)),
        "writes_compare_at": False,
        "warnings": [],
        "status": FIRST_TARGET_STATE.value,
    }
