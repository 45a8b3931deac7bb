"""The moves of runs and targets: legal ones are made and logged, all others are refused and leave
no trace."""

import pytest
from sqlalchemy import select

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing.models.runs import (
    RULE_RUN,
    RULE_TARGET,
    LostRunClaimError,
    PricingRunState,
    TargetState,
)
from automation_pipeline.pricing.models.shop import CANCELLED
from automation_pipeline.pricing.queries.runs import (
    locked_run,
    move_run,
)
from automation_pipeline.pricing.queries.targets import give_up_rest, move_targets
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.transitions import TransitionRow
from automation_pipeline_tests.pricing.kept import a_rule, a_run

FAILED = {"error_type": "server", "error_message": "The shop is away."}


def rows(
    database: Database, table: type[RuleRunRow] | type[RuleTargetRow]
) -> list[dict[str, object]]:
    with database.reading() as session:
        found = session.scalars(select(table).order_by(table.id))
        return [
            {column.key: getattr(row, column.key) for column in table.__mapper__.column_attrs}
            for row in found
        ]


def log(database: Database) -> list[tuple[str, str, str, str, str | None]]:
    with database.reading() as session:
        moves = session.scalars(select(TransitionRow).order_by(TransitionRow.id))
        return [
            (row.entity_id, row.from_state, row.to_state, row.actor, row.reason) for row in moves
        ]


def move(database: Database, clock: Clock, run_id: int, to: PricingRunState) -> None:
    with database.transaction() as session:
        run = locked_run(session, run_id)
        run.finished_at = run.finished_at or clock.now()
        run.queued_at = run.started_at = run.queued_at or clock.now()
        move_run(session, run, to, "worker", clock.now(), "a reason")


def move_all(
    database: Database, clock: Clock, frm: TargetState, targets: list[int], **change: object
) -> None:
    with database.transaction() as session:
        move_targets(session, frm, dict.fromkeys(targets, change), "worker", clock.now())


def target_ids(database: Database) -> list[int]:
    return [row["id"] for row in rows(database, RuleTargetRow)]


@pytest.mark.parametrize("frm", PricingRunState)
def test_a_run_makes_its_legal_moves_and_no_others(
    database: Database, clock: Clock, frm: PricingRunState
) -> None:
    rule = a_rule(database, clock)
    run_id = a_run(database, rule, frm, clock.now(), ["QUEUED"])
    before = rows(database, RuleRunRow)
    for to in PricingRunState:
        if not RULE_RUN.can_move(frm, to):
            with pytest.raises(
                IllegalMoveError, match=f"A rule run cannot move from {frm} to {to}"
            ):
                move(database, clock, run_id, to)
    assert (rows(database, RuleRunRow), log(database)) == (before, [])
    for to in sorted(RULE_RUN.moves[frm]):
        other = a_run(database, a_rule(database, clock), frm, clock.now())
        move(database, clock, other, to)
        assert log(database)[-1] == (str(other), frm, to, "worker", "a reason")
        assert rows(database, RuleRunRow)[-1]["status"] == to


@pytest.mark.parametrize("frm", TargetState)
def test_a_target_makes_its_legal_moves_and_no_others(
    database: Database, clock: Clock, frm: TargetState
) -> None:
    legal = sorted(RULE_TARGET.moves[frm])
    a_run(database, a_rule(database, clock), "APPLYING", clock.now(), [frm] * (1 + len(legal)))
    first, *others = target_ids(database)
    before = rows(database, RuleTargetRow)
    for to in TargetState:
        if not RULE_TARGET.can_move(frm, to):
            with pytest.raises(
                IllegalMoveError, match=f"A rule target cannot move from {frm} to {to}"
            ):
                move_all(database, clock, frm, [first], status=to)
    assert (rows(database, RuleTargetRow), log(database)) == (before, [])
    for other, to in zip(others, legal, strict=True):
        failure = FAILED if to is TargetState.FAILED else {}
        move_all(database, clock, frm, [other], status=to, applied_at=clock.now(), **failure)
        assert log(database)[-1] == (str(other), frm, to, "worker", failure.get("error_message"))
    assert [row["status"] for row in rows(database, RuleTargetRow)] == [frm, *legal]


def test_of_targets_one_of_which_was_moved_meanwhile_none_moves(
    database: Database, clock: Clock
) -> None:
    a_run(
        database,
        a_rule(database, clock),
        "APPLYING",
        clock.now(),
        ["APPLYING", "QUEUED", "APPLYING"],
    )
    before = rows(database, RuleTargetRow)
    with pytest.raises(LostRunClaimError, match="Targets that were APPLYING are not any more"):
        move_all(
            database,
            clock,
            TargetState.APPLYING,
            target_ids(database),
            status="QUEUED",
            is_writing=False,
        )
    assert (rows(database, RuleTargetRow), log(database)) == (before, [])


def test_a_target_that_is_gone_is_not_moved(database: Database, clock: Clock) -> None:
    with pytest.raises(LostRunClaimError):
        move_all(database, clock, TargetState.APPLYING, [99], status="QUEUED")
    move_all(database, clock, TargetState.APPLYING, [], status="QUEUED")
    assert log(database) == []


def test_no_rule_has_two_runs_at_work(database: Database, clock: Clock) -> None:
    rule = a_rule(database, clock)
    a_run(database, rule, "APPLYING", clock.now())
    second = a_run(database, rule, "PREVIEW", clock.now())
    before = rows(database, RuleRunRow)
    with pytest.raises(
        ConflictError, match=f"Another run of rule {rule.id} is queued or being applied"
    ):
        move(database, clock, second, PricingRunState.QUEUED)
    assert (rows(database, RuleRunRow), log(database)) == (before, [])


def test_what_is_given_up_without_a_call_goes_through_applying(
    database: Database, clock: Clock
) -> None:
    a_run(database, a_rule(database, clock), "APPLYING", clock.now(), ["QUEUED", "QUEUED"])
    [run] = rows(database, RuleRunRow)
    with database.transaction() as session:
        give_up_rest(session, run["id"], CANCELLED, "user:1", clock.now())
    given_up = [(row["status"], row["error_type"]) for row in rows(database, RuleTargetRow)]
    assert given_up == [("FAILED", "cancelled")] * 2
    assert [moved[1:3] for moved in log(database)] == [("QUEUED", "APPLYING")] * 2 + [
        ("APPLYING", "FAILED")
    ] * 2
