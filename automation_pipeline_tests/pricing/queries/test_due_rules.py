"""A look at schedules and promotions takes as many statements for hundreds of rules as for one."""

from datetime import timedelta

import pytest
from sqlalchemy import event, insert, select

from automation_pipeline.pricing.queries.rules import lock_planned_rules
from automation_pipeline.pricing.rules.runs import DuePriceRules
from automation_pipeline.pricing.tables import (
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.types import Table
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule, a_run, forget_all, look, run_rows

HOUR = timedelta(hours=1)
MANY = 400


def counted(database: Database, clock: StandingClock) -> tuple[DuePriceRules, int]:
    statements: list[str] = []

    def count(*given: object) -> None:
        statements.append(str(given[2]))

    event.listen(database.engine, "before_cursor_execute", count)
    looked = look(database, clock)
    event.remove(database.engine, "before_cursor_execute", count)
    return looked, len(statements)


def one_of_each(database: Database, clock: StandingClock) -> None:
    now = clock.now()
    a_rule(database, clock, scheduleAt=now.isoformat())
    busy = a_rule(database, clock, scheduleAt=now.isoformat())
    a_run(database, busy, "QUEUED", now)
    a_rule(
        database, clock, scheduleAt=(now - 2 * HOUR).isoformat(), endsAt=(now - HOUR).isoformat()
    )
    over = a_rule(database, clock, endsAt=now.isoformat())
    a_run(database, over, "APPLIED", now, ["APPLIED"])


def multiplied(database: Database) -> None:
    """Every row there is, with what belongs to it, so many times more."""
    with database.transaction() as session:
        for table, references in (
            (RuleRow, ()),
            (RuleRunRow, ("rule_id",)),
            (RuleTargetRow, ("rule_run_id",)),
        ):
            _copy(session, table, references)


def _copy(session: Session, table: type[Table], references: tuple[str, ...]) -> None:
    rows = [dict(row) for row in session.execute(select(*table.__table__.columns)).mappings()]
    copies = [
        {**row, **{name: row[name] + 1000 * copy for name in ("id", *references)}}
        for copy in range(1, MANY)
        for row in rows
    ]
    if table is RuleTargetRow:
        copies = [{**row, "variant_id": f"v{row['id']}"} for row in copies]
    session.execute(insert(table.__table__), copies)


def test_hundreds_of_due_rules_cost_as_many_statements_as_one(
    database: Database, clock: StandingClock
) -> None:
    one_of_each(database, clock)
    looked, for_one = counted(database, clock)
    assert [len(ids) for ids in (looked.started, looked.missed, looked.ended, looked.put_off)] == [
        1
    ] * 4
    clock.pass_time(HOUR)
    forget_all(database)
    one_of_each(database, clock)
    multiplied(database)
    looked, for_many = counted(database, clock)
    assert [len(ids) for ids in (looked.started, looked.missed, looked.ended, looked.put_off)] == [
        MANY
    ] * 4
    assert list(looked.ended) == sorted(looked.ended, reverse=True)
    assert for_many <= for_one + 1
    looked, idle = counted(database, clock)
    assert (len(looked.put_off), looked.started, looked.ended, looked.missed) == (MANY, (), (), ())
    assert idle < for_one
    assert len(run_rows(database)) == 3 * MANY


@pytest.mark.parametrize("how_many", [0, 3])
def test_a_look_at_nothing_that_is_due_asks_once(
    how_many: int, database: Database, clock: StandingClock
) -> None:
    for _ in range(how_many):
        a_rule(database, clock, scheduleAt=(clock.now() + HOUR).isoformat())
    looked, statements = counted(database, clock)
    assert looked == DuePriceRules()
    assert statements <= 3


@pytest.mark.parametrize("database_kind", ["postgres"])
def test_who_refers_to_a_rule_that_is_looked_at_does_not_wait(
    database: Database, clock: StandingClock
) -> None:
    due = a_rule(database, clock, scheduleAt=clock.now().isoformat())
    checked = select(RuleRow.id).where(RuleRow.id == due.id)
    with database.transaction() as session, database.transaction() as other:
        assert [rule.id for rule in lock_planned_rules(session, clock.now())] == [due.id]
        assert (
            other.scalar(checked.with_for_update(read=True, key_share=True, nowait=True)) == due.id
        )
