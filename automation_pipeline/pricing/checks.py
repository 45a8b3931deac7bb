"""Checks of applied prices against the shop: request, reconcile, repair."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Select, and_, exists, func, insert, or_, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.events import mismatch_key, pricing_event
from automation_pipeline.pricing.models.rules import RuleReference
from automation_pipeline.pricing.models.runs import (
    FIRST_TARGET_STATE,
    LIVE_RUN_STATES,
    OPEN_TARGET_STATES,
    PricingRunState,
    RuleRun,
    RuleTrigger,
    TargetState,
)
from automation_pipeline.pricing.models.shop import ApplyContext, Price, PricingContext, price_of
from automation_pipeline.pricing.queries.runs import (
    NewRun,
    add_run,
    get_run,
    locked_run,
)
from automation_pipeline.pricing.rules.monitoring import (
    MANUAL_PREFIX,
    WATCHED_FOR,
    LiveTarget,
    Mismatch,
    ReconciliationReport,
    RuleCheck,
    in_daily_pass,
    reconciliation_report,
    repairable_mismatches,
    validate_check_name,
    worst_severity,
)
from automation_pipeline.pricing.shop import read_prices
from automation_pipeline.pricing.tables import RuleCheckRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import among, upsert

CHECK_JOB = "rule_reconciliation"
REQUEST_AGAIN_AFTER = timedelta(minutes=10)
MAX_CHECKS = 100

Check, Target = RuleCheckRow, RuleTargetRow


def last_checks(*which: ColumnElement[bool]) -> Select[tuple[int]]:
    """Select the id of the last conclusive check of each run: one that read a price, or found that
    the run has no price left in the shop."""
    has_none_left = and_(Check.total_checked == 0, Check.unverified == 0)
    is_conclusive = and_(Check.checked_at.is_not(None), or_(Check.total_checked > 0, has_none_left))
    newest_first = Check.checked_at.desc(), Check.id.desc()
    rank = func.row_number().over(partition_by=Check.rule_run_id, order_by=newest_first)
    ranked = select(Check.id, rank.label("rank")).where(is_conclusive, *which).subquery()
    return select(ranked.c.id).where(ranked.c.rank == 1)


def latest_conclusive_check(session: Session, run_id: int) -> RuleCheck | None:
    row = session.scalar(
        select(Check).where(Check.id.in_(last_checks(Check.rule_run_id == run_id)))
    )
    return None if row is None else RuleCheck.model_validate(row, from_attributes=True)


def checks_of(session: Session, run_id: int) -> list[RuleCheck]:
    """Return the checks of the run by due time: early, daily and manual ones."""
    query = (
        select(Check)
        .where(Check.rule_run_id == run_id)
        .order_by(Check.due_at, Check.id)
        .execution_options(populate_existing=True)
    )
    return [RuleCheck.model_validate(row, from_attributes=True) for row in session.scalars(query)]


def next_manual_name(session: Session, run_id: int) -> str:
    is_manual = Check.name.startswith(MANUAL_PREFIX, autoescape=True)
    query = select(func.count(Check.id)).where(Check.rule_run_id == run_id, is_manual)
    return f"{MANUAL_PREFIX}{(session.scalar(query) or 0) + 1}"


def request_due_checks(*, database: Database, clock: Clock) -> Sequence[str]:
    """Request a Dagster run for each due check, and return the keys of the requests. A request is
    repeated under another key if its check is still not done after a while. Safe to run
    concurrently with itself."""
    now = clock.now()
    may_be_requested = or_(
        Check.requested_at.is_(None), Check.requested_at <= now - REQUEST_AGAIN_AFTER
    )
    due = (
        select(Check)
        .where(Check.checked_at.is_(None), Check.due_at <= now, may_be_requested)
        .order_by(Check.due_at, Check.id)
        .limit(MAX_CHECKS)
        .with_for_update(skip_locked=True)
    )
    requests: list[NewRunRequest] = []
    with database.transaction() as session:
        for row in session.scalars(due):
            # After a retry of the run, the check has a new due time and therefore a new key.
            key = f"rule-check-{row.rule_run_id}-{row.name}-{round(row.due_at.timestamp())}"
            if row.requested_at is not None:
                key += f"-{round(now.timestamp())}"
            config = {"run_id": row.rule_run_id, "check": row.name}
            tags = {"pricing/run_id": str(row.rule_run_id), "pricing/check": row.name}
            requests.append(NewRunRequest(key, CHECK_JOB, config, tags))
            row.requested_at = now
        file_requests(session, requests, now)
    return [request.key for request in requests]


def done_report(session: Session, run_id: int, name: str) -> ReconciliationReport | None:
    """Return None if the check is not done yet."""
    document = session.scalar(
        select(Check.report).where(
            Check.rule_run_id == run_id, Check.name == name, Check.checked_at.is_not(None)
        )
    )
    return None if document is None else ReconciliationReport.model_validate(document)


def _live_targets(session: Session, run_ids: Collection[int]) -> list[LiveTarget]:
    """Return the applied targets of these runs that no later run has replaced."""
    later = aliased(Target)
    is_same = and_(
        later.shop == Target.shop,
        later.variant_id == Target.variant_id,
        later.currency == Target.currency,
    )
    is_later = or_(
        later.applied_at > Target.applied_at,
        and_(later.applied_at == Target.applied_at, later.id > Target.id),
    )
    is_replaced = exists().where(is_same, later.status == TargetState.APPLIED, is_later)
    query = (
        select(Target.id, Target.rule_run_id, Target.variant_id, Target.sku_id, Target.after_json)
        .where(among(session, Target.rule_run_id, run_ids), Target.status == TargetState.APPLIED)
        .where(Target.variant_id.is_not(None), ~is_replaced)
        .order_by(Target.id)
    )
    return [
        LiveTarget(id_, run_id, str(variant_id), sku_id, price_of(after))
        for id_, run_id, variant_id, sku_id, after in session.execute(query).tuples()
    ]


def _variants_in_flux(session: Session, shop: str, variant_ids: Collection[str]) -> set[str]:
    """Return the variants that a run is writing, has written with an unknown outcome, or is about to
    roll back."""
    is_unknown = and_(Target.outcome_unknown, Target.status.in_(sorted(OPEN_TARGET_STATES)))
    is_marked = and_(Target.is_wished, Target.status == TargetState.APPLIED)
    query = select(Target.variant_id).where(
        Target.shop == shop,
        among(session, Target.variant_id, variant_ids),
        or_(Target.is_writing, is_unknown, is_marked),
    )
    return {variant_id for variant_id in session.scalars(query) if variant_id is not None}


async def reconcile_run(run_id: int, context: PricingContext, *, name: str) -> ReconciliationReport:
    """Compare the prices of a run with the shop, and store the report. A completed check is not
    repeated. Raises ShopUnavailableError if no price could be read; the check then stays due. Raises ConflictError
    if no price of the run is applied."""
    validate_check_name(name)

    def read_run() -> tuple[ReconciliationReport | None, str, list[LiveTarget]]:
        with context.database.reading() as session:
            done, run = done_report(session, run_id, name), get_run(session, run_id)
            if done is None and run.status in {PricingRunState.PREVIEW, PricingRunState.QUEUED}:
                raise ConflictError(
                    f"Run {run.id} is {run.status}: it has no applied price to check."
                )
            return done, run.shop, [] if done else _live_targets(session, [run_id])

    done, shop, targets = await asyncio.to_thread(read_run)
    if done is not None:
        return done
    if shop == context.storefront.name:
        prices = await _read_shop({run_id: targets}, context)
    else:
        reason = f"it was applied in another shop, {shop}"
        prices = dict.fromkeys((one.variant_id for one in targets), reason)
    [report] = await asyncio.to_thread(_save, name, {run_id: targets}, prices, shop, context)
    return report


async def reconcile_all(context: PricingContext) -> list[ReconciliationReport]:
    """Check all runs of the last thirty days, and return one report per run. A repetition on the same
    day checks only the runs without a report. Raises ShopUnavailableError if no price could be read;
    nothing is then stored. If reconciliation is disabled, this does nothing."""
    options, shop, now = context.storefront.options, context.storefront.name, context.clock.now()
    if not options.reconciles:
        return []
    day = now.astimezone(ZoneInfo(options.time_zone)).date().isoformat()
    is_done = exists().where(
        Check.rule_run_id == RuleRunRow.id, Check.name == day, Check.checked_at.is_not(None)
    )
    ended = (
        select(RuleRunRow.id, RuleRunRow.finished_at)
        .where(RuleRunRow.shop == shop, RuleRunRow.status.in_(sorted(LIVE_RUN_STATES)), ~is_done)
        .where(RuleRunRow.finished_at >= now - WATCHED_FOR)
        .order_by(RuleRunRow.id)
    )

    def read_runs() -> Mapping[int, Sequence[LiveTarget]]:
        with context.database.reading() as session:
            by_run: dict[int, list[LiveTarget]] = {
                run_id: []
                for run_id, at in session.execute(ended).tuples()
                if at is not None and in_daily_pass(at, now)
            }
            for target in _live_targets(session, by_run):
                by_run[target.run_id].append(target)
            return by_run

    checked = await asyncio.to_thread(read_runs)
    prices = await _read_shop(checked, context)
    return await asyncio.to_thread(_save, day, checked, prices, shop, context)


async def _read_shop(
    checked: Mapping[int, Sequence[LiveTarget]], context: PricingContext
) -> dict[str, Price | str]:
    variants = [one.variant_id for targets in checked.values() for one in targets]
    if not variants:
        return {}
    async with context.storefront.open() as shop:
        return await read_prices(variants, ApplyContext.of(context, shop))


def _save(
    name: str,
    checked: Mapping[int, Sequence[LiveTarget]],
    prices: Mapping[str, Price | str],
    shop: str,
    context: PricingContext,
) -> list[ReconciliationReport]:
    """`checked` are the targets whose prices were read, by run. `prices` has, by variant, the price
    or the reason why it could not be read. Targets that were rolled back or replaced during the
    read are ignored."""
    now = context.clock.now()
    with context.database.transaction() as session:
        live = {target.id for target in _live_targets(session, checked)}
        current = {
            run_id: [target for target in targets if target.id in live]
            for run_id, targets in checked.items()
        }
        variants = [target.variant_id for targets in current.values() for target in targets]
        in_flux = _variants_in_flux(session, shop, variants)
        known = {**prices, **dict.fromkeys(in_flux, "its price was being changed at the same time")}
        reports = [
            reconciliation_report(run_id, [(one, known[one.variant_id]) for one in targets], now)
            for run_id, targets in current.items()
        ]
        save_reports(session, name, reports, now)
        found = [(report.run_id, one) for report in reports for one in report.details]
        enqueue(session, [_mismatch_event(run_id, one, name, now) for run_id, one in found])
        return reports


def save_reports(
    session: Session, name: str, reports: Sequence[ReconciliationReport], now: datetime
) -> None:
    rows = [
        {
            "rule_run_id": int(report.run_id),
            "name": name,
            "due_at": now,
            "checked_at": now,
            "total_checked": report.total_checked,
            "mismatches": report.mismatches,
            "unverified": len(report.unverified),
            "worst": worst_severity(report),
            "report": as_document(report),
        }
        for report in reports
    ]
    fields = ("checked_at", "total_checked", "mismatches", "unverified", "worst", "report")
    upsert(session, Check, rows, key=("rule_run_id", "name"), fields=fields)


def _mismatch_event(run_id: str, one: Mismatch, check: str, now: datetime) -> Event:
    return pricing_event(
        "automation.reconciliation.mismatch",
        mismatch_key(run_id, one.target_id, check),
        f"rule-run-{run_id}",
        now,
        {
            "targetId": one.target_id,
            "runId": run_id,
            "expected": one.expected_price,
            "actual": one.actual_price,
            "currency": one.currency,
            "actualCurrency": one.actual_currency,
            "difference": one.difference,
            "severity": one.severity,
        },
    )


def repair_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """Create a preview that restores the applied prices; people approve and apply it like any other.
    Raises ConflictError if there is nothing to restore."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if run.promotion_ended_at is not None:
            raise ConflictError(
                f"The promotion of run {run_id} is over: its prices are no longer restored."
            )
        check = latest_conclusive_check(session, run_id)
        if check is None or check.report is None:
            raise ConflictError(
                f"No price of run {run_id} was read from the shop yet: reconcile the run first."
            )
        mismatches = {int(one.target_id): one for one in repairable_mismatches(check.report)}
        live = {target.id: target.variant_id for target in _live_targets(session, [run_id])}
        wrong = {id_: live[id_] for id_ in mismatches if id_ in live}
        in_flux = _variants_in_flux(session, run.shop, list(wrong.values()))
        ids = [id_ for id_, variant_id in wrong.items() if variant_id not in in_flux]
        if not ids:
            raise ConflictError(
                f"Run {run_id} needs no repair: its last check, {check.name}, found no wrong price that can "
                "be restored."
            )
        query = select(Target).where(among(session, Target.id, ids)).order_by(Target.id)
        found = [(row, mismatches[row.id]) for row in session.scalars(query)]
        repair_id = _add_repair(session, run, check.name, found, actor, clock.now())
        return get_run(session, repair_id)


def _add_repair(
    session: Session,
    run: RuleRunRow,
    check: str,
    wrong: Sequence[tuple[RuleTargetRow, Mismatch]],
    actor: str,
    now: datetime,
) -> int:
    """Add a run with the original version of the rule, whose drift option applies. Compare-at prices
    were not read and stay unchanged."""
    new = NewRun(
        rule=RuleReference(run.rule_id, run.project_id, run.rule_version, run.rule_version_hash),
        shop=run.shop,
        trigger=RuleTrigger.REPAIR,
        actor=actor,
        parent_run_id=run.id,
        force=True,
    )
    repair = locked_run(session, add_run(session, new, now))
    rows: list[dict[str, object]] = [
        {
            "rule_run_id": repair.id,
            "tenant_id": target.tenant_id,
            "project_id": target.project_id,
            "shop": target.shop,
            "product_id": target.product_id,
            "variant_id": target.variant_id,
            "sku_id": target.sku_id,
            "title": target.title,
            "currency": found.currency,
            "before_json": vars(Price(found.actual_price, found.currency)),
            "after_json": vars(Price(found.expected_price, found.currency)),
            "writes_compare_at": False,
            "warnings": [],
            "status": FIRST_TARGET_STATE.value,
        }
        for target, found in wrong
    ]
    session.connection().execute(insert(Target), rows)
    repair.matched = repair.total_targets = len(rows)
    repair.explain_json = {
        "matchedProducts": len({target.product_id for target, _ in wrong}),
        "appliedTargets": len(rows),
        "skippedTargets": 0,
        "repairs": {"runId": str(run.id), "check": check},
    }
    repair.previewed_at = repair.updated_at = now
    session.flush()
    return repair.id
