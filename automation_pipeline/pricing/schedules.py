"""Start scheduled rules, and end promotions."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, or_, select, update
from sqlalchemy.orm import aliased

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.events import promotion_ended, run_scheduled, schedule_missed
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    LIVE_RUN_STATES,
    RuleTrigger,
    RunAction,
    TargetState,
)
from automation_pipeline.pricing.queries.runs import (
    RUN_CLAIMS,
    NewRun,
    add_runs,
    file_run_requests,
    open_runs_of,
)
from automation_pipeline.pricing.queries.targets import update_targets
from automation_pipeline.pricing.rules.runs import DueAction, DuePriceRules, PlannedRule, due_action
from automation_pipeline.pricing.tables import RuleRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import among, database_now


def lock_planned_rules(session: Session, now: datetime) -> list[PlannedRule]:
    """Return the rules that may be due, including deleted rules whose prices are in the shop. They
    are locked until the transaction ends. A rule that another transaction has locked waits for the
    next tick."""
    is_applied = select(RuleRunRow.id).where(RuleRunRow.rule_id == RuleRow.id, *_is_live()).exists()
    is_in_use = and_(RuleRow.enabled, RuleRow.deleted_at.is_(None))
    starts = and_(RuleRow.schedule_at <= now, is_in_use)
    ends = and_(RuleRow.ends_at <= now, is_applied)
    version = RuleRow.id, RuleRow.project_id, RuleRow.version, RuleRow.version_hash
    query = (
        select(*version, is_in_use, RuleRow.schedule_at, RuleRow.ends_at, is_applied)
        .where(or_(starts, ends))
        .order_by(RuleRow.id)
        .with_for_update(of=RuleRow, skip_locked=True, key_share=True)
    )
    return [PlannedRule(*row) for row in session.execute(query).tuples()]


def clear_schedules(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    if rule_ids:
        session.execute(
            update(RuleRow)
            .where(among(session, RuleRow.id, rule_ids))
            .values(schedule_at=None, updated_at=now)
            .execution_options(synchronize_session=False)
        )


def close_repairs(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    """Close the repairs of locked rules whose promotion is over. Restored prices are rolled back with
    the run that was repaired. A repair that is claimed or locked by another process stays unchanged."""
    may_be_closed = or_(RuleRunRow.wish.is_(None), RuleRunRow.wish != RunAction.ROLLBACK)
    query = (
        select(RuleRunRow.id)
        .where(among(session, RuleRunRow.rule_id, rule_ids), *_is_live(), RUN_CLAIMS.is_free())
        .where(RuleRunRow.trigger == RuleTrigger.REPAIR, may_be_closed)
        .with_for_update(skip_locked=True)
    )
    repairs = session.scalars(query).all()
    if not repairs:
        return
    session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, repairs))
        .values(promotion_ended_at=now, wish=None, wished_by=None, resume_at=None, updated_at=now)
        .execution_options(synchronize_session=False)
    )
    of_repairs = among(session, RuleTargetRow.rule_run_id, repairs)
    update_targets(session, of_repairs, RuleTargetRow.is_wished, is_wished=False)


def lock_live_runs(session: Session, rule_ids: Collection[int]) -> list[tuple[int, int]]:
    """Return the id and the rule of the newest run of each rule that must be rolled back, because
    newer prices are rolled back before older ones. Runs that are claimed, locked by another process
    or postponed wait for a later tick; so do rules with an active run or a rollback."""
    other = aliased(RuleRunRow)
    is_due = or_(RuleRunRow.resume_at.is_(None), RuleRunRow.resume_at <= database_now())
    must_wait = exists().where(
        other.rule_id == RuleRunRow.rule_id,
        or_(
            other.wish == RunAction.ROLLBACK,
            other.status.in_(sorted(ACTIVE_RUN_STATES)),
            and_(other.id > RuleRunRow.id, *_is_live(other)),
        ),
    )
    query = (
        select(RuleRunRow.id, RuleRunRow.rule_id)
        .where(
            among(session, RuleRunRow.rule_id, rule_ids),
            *_is_live(),
            RUN_CLAIMS.is_free(),
            is_due,
            ~must_wait,
        )
        .where(RuleRunRow.trigger != RuleTrigger.REPAIR)
        .order_by(RuleRunRow.id.desc())
        .with_for_update(skip_locked=True)
    )
    return [(run_id, rule_id) for run_id, rule_id in session.execute(query).tuples()]


def request_rollbacks(
    session: Session, run_ids: Collection[int], actor: str, now: datetime
) -> None:
    """Request rollbacks of locked runs: mark every applied target, and no failed one."""
    if not run_ids:
        return
    session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, run_ids))
        .values(
            promotion_ended_at=now,
            wish=RunAction.ROLLBACK,
            wished_by=actor,
            rollbacks=RuleRunRow.rollbacks + 1,
            rollback_force=False,
            resume_at=None,
            updated_at=now,
        )
        .execution_options(synchronize_session=False)
    )
    is_applied = RuleTargetRow.status == TargetState.APPLIED
    update_targets(
        session,
        among(session, RuleTargetRow.rule_run_id, run_ids),
        or_(is_applied, RuleTargetRow.is_wished),
        is_wished=is_applied,
        next_attempt_at=None,
    )


def _is_live(run: type[RuleRunRow] = RuleRunRow) -> tuple[ColumnElement[bool], ...]:
    return run.status.in_(sorted(LIVE_RUN_STATES)), run.promotion_ended_at.is_(None)


_SCHEDULE = "schedule"


def start_due_rules(*, database: Database, clock: Clock, shop: str) -> DuePriceRules:
    """Start due rules and end promotions. Safe to run concurrently with itself and with requests for
    runs. A rule with an open run starts after that run has ended; a promotion ends after its run has
    been applied."""
    now = clock.now()
    with database.transaction() as session:
        due: dict[DueAction | None, list[PlannedRule]] = {action: [] for action in DueAction}
        for rule in lock_planned_rules(session, now):
            due.setdefault(due_action(rule, now), []).append(rule)
        # The rules are locked, so no concurrent request can create a run of them now.
        open_runs = open_runs_of(session, [rule.id for rule in due[DueAction.START]])
        free = [rule for rule in due[DueAction.START] if rule.id not in open_runs]
        started = _start_rules(session, free, shop, now)
        ended = _end_promotions(session, due[DueAction.END], now)
        missed = due[DueAction.MISSED]
        enqueue(
            session,
            [
                schedule_missed(rule.id, rule.project_id, rule.schedule_at, now)
                for rule in missed
                if rule.schedule_at
            ],
        )
        clear_schedules(session, [rule.id for rule in [*free, *missed]], now)
    return DuePriceRules(
        started=tuple(started.values()),
        missed=tuple(rule.id for rule in missed),
        ended=tuple(ended),
        put_off=tuple(sorted(open_runs)),
        before=tuple(rule.id for rule in free if rule.id not in started),
    )


def _start_rules(
    session: Session, rules: Sequence[PlannedRule], shop: str, now: datetime
) -> dict[int, int]:
    runs = [
        NewRun(
            rule=rule,
            shop=shop,
            trigger=RuleTrigger.SCHEDULE,
            actor=_SCHEDULE,
            wish=RunAction.APPLY,
            scheduled_for=rule.schedule_at,
        )
        for rule in rules
    ]
    started = add_runs(session, runs, now)
    file_run_requests(session, list(started.values()), now)
    enqueue(
        session,
        [
            run_scheduled(rule.id, rule.project_id, started[rule.id], rule.schedule_at, now)
            for rule in rules
            if rule.id in started and rule.schedule_at
        ],
    )
    return started


def _end_promotions(session: Session, rules: Sequence[PlannedRule], now: datetime) -> list[int]:
    if not rules:
        return []
    by_id = {rule.id: rule for rule in rules}
    close_repairs(session, list(by_id), now)
    runs = [(run_id, by_id[rule_id]) for run_id, rule_id in lock_live_runs(session, list(by_id))]
    run_ids = [run_id for run_id, _ in runs]
    request_rollbacks(session, run_ids, _SCHEDULE, now)
    file_run_requests(session, run_ids, now)
    enqueue(
        session,
        [
            promotion_ended(rule.id, rule.project_id, run_id, rule.ends_at, now)
            for run_id, rule in runs
            if rule.ends_at
        ],
    )
    return run_ids
