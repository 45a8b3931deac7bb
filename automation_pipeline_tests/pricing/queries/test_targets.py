"""Claims, transitions and counts of targets."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import insert, select, update

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import (
    RULE_RUN,
    RULE_TARGET,
    LostRunClaimError,
    PricingRunState,
    TargetState,
)
from automation_pipeline.pricing.models.shop import CANCELLED
from automation_pipeline.pricing.queries.runs import locked_run, move_run
from automation_pipeline.pricing.queries.targets import (
    MAX_PRODUCTS,
    MAX_TARGETS,
    changes_since,
    claim_chunk,
    give_up_rest,
    move_targets,
    requeue_abandoned,
    waiting_targets,
)
from automation_pipeline.pricing.tables import PriceChangeRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.pricing.processes import claim_targets
from automation_pipeline_tests.pricing.rows import SHOP, make_rule, make_run
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

Row = RuleTargetRow


def applying(database: Database, clock: Clock, targets: Sequence[str]) -> int:
    """A run that is being applied, with one product per target."""
    run_id = make_run(database, make_rule(database, clock), "APPLYING", clock.now(), targets)
    with database.transaction() as session:
        session.execute(
            update(Row).where(Row.rule_run_id == run_id).values(product_id=Row.variant_id)
        )
    return run_id


def change(database: Database, run_id: int, variant_id: str, **values: object) -> None:
    with database.transaction() as session:
        conditions = Row.rule_run_id == run_id, Row.variant_id == variant_id
        session.execute(update(Row).where(*conditions).values(**values))


def claimed(database: Database, clock: Clock, run_id: int) -> list[str | None]:
    with database.transaction() as session:
        return [one.variant_id for one in claim_chunk(session, run_id, "worker", clock.now())]


def test_due_targets_are_claimed_and_no_other_run_writes_them(
    database: Database, clock: Clock
) -> None:
    run_id = applying(database, clock, ["QUEUED", "QUEUED", "QUEUED", "APPLIED", "FAILED"])
    change(
        database, run_id, "v1", next_attempt_at=database_now(-1.0), attempts=2, began_at=clock.now()
    )
    change(database, run_id, "v2", next_attempt_at=database_now(3600.0))
    clock.advance(timedelta(minutes=1))
    assert claimed(database, clock, run_id) == ["v0", "v1"]
    with database.reading() as session:
        rows = session.scalars(select(Row).where(Row.is_writing).order_by(Row.id)).all()
    assert [(row.status, row.last_attempt, row.next_attempt_at) for row in rows] == [
        ("APPLYING", clock.now(), None)
    ] * 2
    assert [row.began_at for row in rows] == [clock.now(), clock.now() - timedelta(minutes=1)]
    assert claimed(database, clock, run_id) == []


def test_a_chunk_holds_whole_products_up_to_its_size(database: Database, clock: Clock) -> None:
    run_id = applying(database, clock, ["QUEUED"] * (MAX_PRODUCTS + 5))
    assert len(claimed(database, clock, run_id)) == MAX_PRODUCTS
    assert len(claimed(database, clock, run_id)) == 5
    run_id = make_run(
        database,
        make_rule(database, clock),
        "APPLYING",
        clock.now(),
        ["QUEUED"] * (MAX_TARGETS + 2),
    )
    change(database, run_id, "v0", shop=SHOP)
    with database.transaction() as session:
        session.execute(update(Row).where(Row.is_writing).values(is_writing=False))
    assert [len(claimed(database, clock, run_id)) for _ in range(3)] == [MAX_TARGETS, 2, 0]


def test_a_variant_that_another_run_writes_is_not_claimed(database: Database, clock: Clock) -> None:
    first, second = (applying(database, clock, ["QUEUED", "QUEUED"]) for _ in range(2))
    change(database, first, "v0", status="APPLYING", is_writing=True)
    assert claimed(database, clock, second) == ["v1"]
    change(database, first, "v0", is_writing=False)
    assert claimed(database, clock, second) == ["v0"]


def test_one_of_several_concurrent_processes_claims_the_targets(
    database: Database, database_url: str, clock: Clock
) -> None:
    runs = [applying(database, clock, ["QUEUED"] * 3) for _ in range(PROCESS_COUNT)]
    found = run_in_processes(claim_targets, *[(database_url, run_id) for run_id in runs])
    assert sorted(found) == [0] * (PROCESS_COUNT - 1) + [3]


def test_pending_targets_and_the_next_due_time_of_a_run(database: Database, clock: Clock) -> None:
    run_id = applying(database, clock, ["QUEUED", "QUEUED", "APPLYING", "APPLIED"])
    with database.reading() as session:
        assert tuple(waiting_targets(session, run_id)) == (2, None)
    later = clock.now() + timedelta(minutes=5)
    change(database, run_id, "v0", next_attempt_at=later)
    with database.reading() as session:
        assert tuple(waiting_targets(session, run_id)) == (2, later)
        assert tuple(waiting_targets(session, 99)) == (0, None)


@pytest.mark.parametrize("is_writing", [True, False])
def test_targets_of_a_lost_worker_are_requeued_with_an_unknown_outcome(
    database: Database, clock: Clock, is_writing: bool
) -> None:
    run_id = applying(database, clock, ["APPLYING", "QUEUED", "APPLIED"])
    change(database, run_id, "v0", is_writing=is_writing, attempts=2)
    with database.transaction() as session:
        assert requeue_abandoned(session, run_id, clock.now()) == 1
        assert requeue_abandoned(session, run_id, clock.now()) == 0
    with database.reading() as session:
        rows = session.scalars(select(Row).order_by(Row.id)).all()
    assert [(row.status, row.is_writing, row.outcome_unknown) for row in rows] == [
        ("QUEUED", False, True),
        ("QUEUED", False, False),
        ("APPLIED", False, False),
    ]
    assert rows[0].attempts == 2


def test_changes_since_a_time_exclude_rollbacks_and_other_shops(
    database: Database, clock: Clock
) -> None:
    run_id = applying(database, clock, ["APPLIED"])
    with database.reading() as session:
        target_id = session.scalars(select(Row.id)).one()
    values = {
        "tenant_id": TENANT,
        "project_id": "default",
        "source": "rule:1",
        "rule_run_id": run_id,
    }
    about = {"target_id": target_id, "product_id": "p1", "currency": "EUR", "was_found": False}
    since = clock.now()
    rows = [
        ("apply", SHOP, "v0", 0, 1000, 900),
        ("apply", SHOP, "v0", 5, 900, 800),
        ("apply", SHOP, "v0", -5, 1100, 1000),
        ("rollback", SHOP, "v0", 6, 800, 900),
        ("apply", "another.shop", "v0", 5, 1, 2),
        ("apply", SHOP, "v1", 5, 5, 6),
        ("apply", SHOP, "v2", 5, 7, 8),
    ]
    with database.transaction() as session:
        for number, (kind, shop, variant_id, minutes, frm, to) in enumerate(rows):
            priced = {
                "from_amount": frm,
                "to_amount": to,
                "applied_at": since + timedelta(minutes=minutes),
            }
            one = {"event_key": str(number), "kind": kind, "shop": shop, "variant_id": variant_id}
            session.execute(insert(PriceChangeRow).values(**values, **about, **priced, **one))
    with database.reading() as session:
        found = changes_since(session, SHOP, ["v0", "v1", "v9"], since)
    assert {variant_id: sorted(pairs) for variant_id, pairs in found.items()} == {
        "v0": [(900, 800), (1000, 900)],
        "v1": [(5, 6)],
    }


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
def test_a_stored_run_makes_only_legal_transitions(
    database: Database, clock: Clock, frm: PricingRunState
) -> None:
    rule = make_rule(database, clock)
    run_id = make_run(database, rule, frm, clock.now(), ["QUEUED"])
    before = rows(database, RuleRunRow)
    for to in PricingRunState:
        if not RULE_RUN.can_move(frm, to):
            with pytest.raises(
                IllegalMoveError, match=f"A rule run cannot move from {frm} to {to}"
            ):
                move(database, clock, run_id, to)
    assert (rows(database, RuleRunRow), log(database)) == (before, [])
    for to in sorted(RULE_RUN.moves[frm]):
        other = make_run(database, make_rule(database, clock), frm, clock.now())
        move(database, clock, other, to)
        assert log(database)[-1] == (str(other), frm, to, "worker", "a reason")
        assert rows(database, RuleRunRow)[-1]["status"] == to


@pytest.mark.parametrize("frm", TargetState)
def test_a_stored_target_makes_only_legal_transitions(
    database: Database, clock: Clock, frm: TargetState
) -> None:
    legal = sorted(RULE_TARGET.moves[frm])
    make_run(
        database, make_rule(database, clock), "APPLYING", clock.now(), [frm] * (1 + len(legal))
    )
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


def test_a_batch_with_one_target_in_another_state_changes_nothing(
    database: Database, clock: Clock
) -> None:
    make_run(
        database,
        make_rule(database, clock),
        "APPLYING",
        clock.now(),
        ["APPLYING", "QUEUED", "APPLYING"],
    )
    before = rows(database, RuleTargetRow)
    with pytest.raises(LostRunClaimError, match="Targets that were APPLYING have changed"):
        move_all(
            database,
            clock,
            TargetState.APPLYING,
            target_ids(database),
            status="QUEUED",
            is_writing=False,
        )
    assert (rows(database, RuleTargetRow), log(database)) == (before, [])


def test_a_missing_target_makes_no_transition(database: Database, clock: Clock) -> None:
    with pytest.raises(LostRunClaimError):
        move_all(database, clock, TargetState.APPLYING, [99], status="QUEUED")
    move_all(database, clock, TargetState.APPLYING, [], status="QUEUED")
    assert log(database) == []


def test_a_rule_has_at_most_one_active_run(database: Database, clock: Clock) -> None:
    rule = make_rule(database, clock)
    make_run(database, rule, "APPLYING", clock.now())
    second = make_run(database, rule, "PREVIEW", clock.now())
    before = rows(database, RuleRunRow)
    with pytest.raises(
        ConflictError, match=f"Another run of rule {rule.id} is queued or being applied"
    ):
        move(database, clock, second, PricingRunState.QUEUED)
    assert (rows(database, RuleRunRow), log(database)) == (before, [])


def test_a_target_that_fails_without_a_call_passes_through_applying(
    database: Database, clock: Clock
) -> None:
    make_run(database, make_rule(database, clock), "APPLYING", clock.now(), ["QUEUED", "QUEUED"])
    [run] = rows(database, RuleRunRow)
    with database.transaction() as session:
        give_up_rest(session, run["id"], CANCELLED, "user:1", clock.now())
    given_up = [(row["status"], row["error_type"]) for row in rows(database, RuleTargetRow)]
    assert given_up == [("FAILED", "cancelled")] * 2
    assert [moved[1:3] for moved in log(database)] == [("QUEUED", "APPLYING")] * 2 + [
        ("APPLYING", "FAILED")
    ] * 2
