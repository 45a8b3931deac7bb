"""Start the rules whose time has come, and have the promotions rolled back whose time is over."""

from collections.abc import Iterable
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.domain import rule_events
from automation_pipeline.pricing.domain.due_rules import DueRules
from automation_pipeline.pricing.domain.promotion import Due, due
from automation_pipeline.pricing.domain.rule_run import RuleTrigger, Wish
from automation_pipeline.pricing.store.due_rules import (
    PlannedRule,
    clear_schedules,
    close_repairs,
    hold_planned_rules,
    hold_standing_runs,
    wish_rolled_back,
)
from automation_pipeline.pricing.store.new_runs import NewRun, add_runs, file_run_requests
from automation_pipeline.pricing.store.rule_activity import open_runs_of
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue

_ACTOR = "schedule"


def start_due_rules(*, database: Database, clock: Clock, shop: str) -> DueRules:
    """Safe beside another copy of itself and beside runs asked for by hand. A rule that has a run already starts once
    that is over; so does the end of a promotion whose run is still being applied."""
    now = clock.now()
    with database.transaction() as session:
        rules = hold_planned_rules(session, now)
        whose = {what: [rule for rule in rules if due(rule.plan, now) is what] for what in Due}
        # Asked after the rules are held, so that a run filed for one of them before is seen.
        is_busy = open_runs_of(session, [rule.id for rule in whose[Due.START]])
        free = [rule for rule in whose[Due.START] if rule.id not in is_busy]
        started = _start(session, free, shop, now)
        ended = _end(session, whose[Due.END], now)
        enqueue(session, list(_missed(whose[Due.MISSED], now)))
        clear_schedules(session, [rule.id for rule in [*free, *whose[Due.MISSED]]], now)
    return DueRules(
        started=tuple(started.values()),
        missed=tuple(rule.id for rule in whose[Due.MISSED]),
        ended=tuple(ended),
        put_off=tuple(sorted(is_busy)),
        before=tuple(rule.id for rule in free if rule.id not in started),
    )


def _start(session: Session, rules: list[PlannedRule], shop: str, now: datetime) -> dict[int, int]:
    """The runs by rule."""
    runs = [
        NewRun(
            rule=rule,
            shop=shop,
            trigger=RuleTrigger.SCHEDULE,
            actor=_ACTOR,
            wish=Wish.APPLY,
            scheduled_for=rule.plan.schedule_at,
        )
        for rule in rules
    ]
    started = add_runs(session, runs, now)
    file_run_requests(session, list(started.values()), now)
    enqueue(
        session,
        [
            rule_events.scheduled(rule.id, rule.project_id, started[rule.id], rule.plan.schedule_at, now)
            for rule in rules
            if rule.id in started and rule.plan.schedule_at
        ],
    )
    return started


def _end(session: Session, rules: list[PlannedRule], now: datetime) -> list[int]:
    """The runs that are to be rolled back."""
    by_id = {rule.id: rule for rule in rules}
    close_repairs(session, list(by_id), now)
    runs = hold_standing_runs(session, list(by_id))
    run_ids = [run_id for run_id, _ in runs]
    wish_rolled_back(session, run_ids, _ACTOR, now)
    file_run_requests(session, run_ids, now)
    ends = [(run_id, by_id[rule_id]) for run_id, rule_id in runs]
    enqueue(
        session,
        [
            rule_events.promotion_ended(rule.id, rule.project_id, run_id, rule.plan.ends_at, now)
            for run_id, rule in ends
            if rule.plan.ends_at
        ],
    )
    return run_ids


def _missed(rules: Iterable[PlannedRule], now: datetime) -> Iterable[Event]:
    return (
        rule_events.missed(rule.id, rule.project_id, rule.plan.schedule_at, now)
        for rule in rules
        if rule.plan.schedule_at
    )
