"""Runs that want a worker and have none are asked for again; all others are let be."""

from collections.abc import Callable

import pytest
from sqlalchemy import update

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.queries.runs import file_run_requests
from automation_pipeline.pricing.runs import sweep_rule_runs
from automation_pipeline.pricing.shop import pause_shop
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.pricing.kept import SHOP, a_rule, a_run, change_run, filed, run_row

AN_HOUR = database_now(3600.0)
BEFORE = database_now(-1.0)

Setting = Callable[[Database, int], None]


def row(**values: object) -> Setting:
    return lambda database, run_id: change_run(database, run_id, **values)


def asked_for(state: str, seconds_ago: float | None) -> Setting:
    def ask(database: Database, run_id: int) -> None:
        offered = None if seconds_ago is None else database_now(-seconds_ago)
        with database.transaction() as session:
            file_run_requests(session, [run_id], run_row(database, run_id).created_at)
            session.execute(update(RunRequestRow).values(state=state, offered_at=offered))

    return ask


def paused(shop: str) -> Setting:
    def pause(database: Database, _run_id: int) -> None:
        pause_shop(shop, database=database, actor="user:7")

    return pause


def sweep(database: Database, clock: Clock) -> list[int]:
    return list(sweep_rule_runs(database=database, clock=clock))


@pytest.mark.parametrize(
    ("status", "settings", "is_found"),
    [
        ("QUEUED", [], True),
        ("APPLYING", [], True),
        ("APPLYING", [row(lease_owner="lost", lease_until=BEFORE)], True),
        ("APPLYING", [row(lease_owner="alive", lease_until=AN_HOUR)], False),
        ("APPLYING", [row(resume_at=BEFORE)], True),
        ("APPLYING", [row(resume_at=AN_HOUR)], False),
        ("QUEUED", [asked_for("waiting", None)], False),
        ("QUEUED", [asked_for("waiting", 3600)], False),
        ("QUEUED", [asked_for("taken", 5)], False),
        ("APPLYING", [asked_for("taken", 3600)], True),
        ("APPLYING", [asked_for("refused", 5)], True),
        ("QUEUED", [paused(SHOP)], False),
        ("APPLYING", [row(resume_at=BEFORE), paused(SHOP)], False),
        ("QUEUED", [paused("another.shop")], True),
        ("APPLYING", [row(cancel_requested_at=BEFORE), paused(SHOP)], True),
        ("APPLIED", [row(wish="rollback", cancel_requested_at=BEFORE), paused(SHOP)], False),
        ("PREVIEW", [], False),
        ("PREVIEW", [row(wish="apply")], True),
        ("PARTIAL", [row(wish="retry")], True),
        ("APPLIED", [row(wish="rollback")], True),
        ("APPLIED", [row(wish="rollback"), paused(SHOP)], False),
        ("PARTIAL", [], False),
        ("FAILED", [], False),
        ("ROLLED_BACK", [], False),
    ],
)
def test_a_run_is_asked_for_when_it_wants_a_worker_and_has_none(
    database: Database, clock: Clock, status: str, settings: list[Setting], is_found: bool
) -> None:
    run_id = a_run(database, a_rule(database, clock), status, clock.now())
    for setting in settings:
        setting(database, run_id)
    before = len(filed(database))
    assert sweep(database, clock) == [run_id] * is_found
    asked = filed(database)[before:]
    assert [(job, config) for _, job, config in asked] == [
        ("rule_run", {"run_id": run_id})
    ] * is_found


def test_who_was_asked_for_is_not_asked_for_at_the_next_look(
    database: Database, clock: Clock
) -> None:
    runs = [a_run(database, a_rule(database, clock), "QUEUED", clock.now()) for _ in range(3)]
    assert sweep(database, clock) == runs
    assert sweep(database, clock) == []
    assert [key for key, _, _ in filed(database)] == [f"rule-run-{run_id}-1" for run_id in runs]
