"""Rows of runs and targets that the constraints of the tables refuse."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.tables import (
    PriceChangeRow,
    RuleRunRow,
    RuleTargetRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.pricing.rows import make_rule, make_run

SECOND = timedelta(seconds=1)
ERROR = {"error_type": "server"}


def change(database: Database, table: type[Any], row_id: int, values: dict[str, object]) -> None:
    with database.transaction() as session:
        session.execute(update(table).where(table.id == row_id).values(**values))


def target_of(database: Database, run_id: int) -> int:
    with database.reading() as session:
        return session.scalars(
            select(RuleTargetRow.id).where(RuleTargetRow.rule_run_id == run_id)
        ).one()


@pytest.mark.parametrize(
    ("status", "allowed", "refused"),
    [
        ("QUEUED", {"attempts": 3}, {"attempts": 4}),
        ("APPLYING", {"attempts": 0}, {"attempts": -1}),
        ("APPLIED", {"attempts": 3}, {"attempts": 4}),
        ("FAILED", {"attempts": 4, **ERROR}, {"attempts": -1, **ERROR}),
        ("FAILED", ERROR, {"error_type": None}),
        ("APPLIED", {}, {"applied_at": None}),
        ("APPLYING", {"status": "QUEUED"}, {"status": "APPLIED"}),
        ("APPLYING", {"is_writing": True}, {"is_writing": True, "status": "QUEUED"}),
        ("APPLIED", {"is_writing": True}, {"is_writing": True, "status": "FAILED", **ERROR}),
        ("QUEUED", {"status": "APPLYING"}, {"status": "DONE"}),
        ("QUEUED", {"variant_id": None}, {"product_id": None}),
    ],
)
def test_a_target_that_violates_a_constraint_is_refused(
    database: Database,
    clock: Clock,
    status: str,
    allowed: dict[str, object],
    refused: dict[str, object],
) -> None:
    target = target_of(
        database, make_run(database, make_rule(database, clock), "APPLYING", clock.now(), [status])
    )
    with pytest.raises(IntegrityError):
        change(database, RuleTargetRow, target, refused)
    if allowed:
        change(database, RuleTargetRow, target, allowed)


@every_case(
    ("status", "times", "is_allowed"),
    [
        ("QUEUED", {"queued_at": 0}, True),
        ("QUEUED", {"queued_at": None}, False),
        ("PREVIEW", {"queued_at": None}, True),
        ("APPLYING", {"queued_at": 1, "started_at": 1}, True),
        ("APPLYING", {"queued_at": 1, "started_at": 0}, False),
        ("APPLIED", {"queued_at": 0, "started_at": 1, "finished_at": 1}, True),
        ("APPLIED", {"queued_at": 0, "started_at": 2, "finished_at": 1}, False),
        ("PARTIAL", {"queued_at": 0, "started_at": 1, "finished_at": None}, False),
        ("FAILED", {"queued_at": 0, "started_at": 1, "finished_at": None}, False),
        ("ROLLED_BACK", {"queued_at": 0, "started_at": 1, "finished_at": None}, False),
        ("APPLYING", {"queued_at": 0, "started_at": 1, "finished_at": None}, True),
        ("ENDED", {"queued_at": 0, "started_at": 1, "finished_at": 2}, False),
    ],
)
def test_the_timestamps_of_a_run_are_ordered_and_required_by_status(
    database: Database, clock: Clock, status: str, times: dict[str, int | None], is_allowed: bool
) -> None:
    run_id = make_run(database, make_rule(database, clock), "PREVIEW", clock.now())
    values = {name: None if at is None else clock.now() + at * SECOND for name, at in times.items()}
    if is_allowed:
        change(database, RuleRunRow, run_id, {"status": status, **values})
        return
    with pytest.raises(IntegrityError):
        change(database, RuleRunRow, run_id, {"status": status, **values})


@pytest.mark.parametrize(("column", "wrong"), [("wish", "more"), ("rollback_state", "SOME")])
def test_requested_action_and_rollback_state_have_known_values(
    database: Database, clock: Clock, column: str, wrong: str
) -> None:
    run_id = make_run(database, make_rule(database, clock), "APPLIED", clock.now())
    with pytest.raises(IntegrityError):
        change(database, RuleRunRow, run_id, {column: wrong})


@pytest.mark.parametrize("first", ["QUEUED", "APPLYING"])
@pytest.mark.parametrize("second", ["QUEUED", "APPLYING"])
def test_a_rule_has_one_active_run(
    database: Database, clock: Clock, first: str, second: str
) -> None:
    rule = make_rule(database, clock)
    make_run(database, rule, first, clock.now())
    with pytest.raises(IntegrityError):
        make_run(database, rule, second, clock.now())
    make_run(database, make_rule(database, clock), second, clock.now())
    for ended in ("PREVIEW", "APPLIED", "PARTIAL", "FAILED", "ROLLED_BACK"):
        make_run(database, rule, ended, clock.now())


def test_a_rule_has_one_run_per_scheduled_time(database: Database, clock: Clock) -> None:
    rule = make_rule(database, clock)
    for _ in range(2):
        make_run(database, rule, "PREVIEW", clock.now())
    make_run(database, rule, "PREVIEW", clock.now(), scheduled_for=clock.now())
    with pytest.raises(IntegrityError):
        make_run(database, rule, "PREVIEW", clock.now(), scheduled_for=clock.now())


def test_a_variant_is_written_by_one_run_at_a_time(database: Database, clock: Clock) -> None:
    one, other = (
        target_of(
            database,
            make_run(database, make_rule(database, clock), "APPLYING", clock.now(), ["APPLYING"]),
        )
        for _ in range(2)
    )
    change(database, RuleTargetRow, one, {"is_writing": True})
    with pytest.raises(IntegrityError):
        change(database, RuleTargetRow, other, {"is_writing": True})
    change(database, RuleTargetRow, other, {"shop": "another.shop", "is_writing": True})
    change(database, RuleTargetRow, one, {"is_writing": False})
    change(database, RuleTargetRow, other, {"shop": "shop.example"})


def test_a_run_has_one_target_per_variant(database: Database, clock: Clock) -> None:
    run_id = make_run(
        database, make_rule(database, clock), "APPLYING", clock.now(), ["QUEUED", "QUEUED"]
    )
    with database.reading() as session:
        targets = session.scalars(
            select(RuleTargetRow.id).where(RuleTargetRow.rule_run_id == run_id)
        ).all()
    with pytest.raises(IntegrityError):
        change(database, RuleTargetRow, targets[0], {"variant_id": "v1"})


def price_change_row(
    database: Database, clock: Clock, run_id: int, key: str, kind: str = "apply"
) -> None:
    values = {
        "tenant_id": "main",
        "project_id": "default",
        "shop": "shop.example",
        "source": "rule:1",
    }
    target = {
        "target_id": target_of(database, run_id),
        "product_id": "p1",
        "variant_id": "v0",
        "currency": "EUR",
    }
    priced = {"from_amount": 1000, "to_amount": 900, "was_found": False, "applied_at": clock.now()}
    row = {"event_key": key, "kind": kind, "rule_run_id": run_id, **values, **target, **priced}
    with database.transaction() as session:
        session.execute(insert(PriceChangeRow).values(**row))


def test_a_price_change_is_unique_and_deleted_with_its_run(
    database: Database, clock: Clock
) -> None:
    run_id = make_run(database, make_rule(database, clock), "APPLYING", clock.now(), ["APPLIED"])
    price_change_row(database, clock, run_id, "one")
    with pytest.raises(IntegrityError):
        price_change_row(database, clock, run_id, "one")
    with pytest.raises(IntegrityError):
        price_change_row(database, clock, run_id, "two", "found")
    with database.transaction() as session:
        session.execute(delete(RuleRunRow))
    with database.reading() as session:
        assert session.scalars(select(PriceChangeRow.id)).all() == []
        assert session.scalars(select(RuleTargetRow.id)).all() == []
