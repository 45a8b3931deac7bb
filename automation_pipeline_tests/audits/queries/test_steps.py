"""Stored steps: their history, and concurrent changes of one audit."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from automation_pipeline.audits.models.audits import Rerun, Statut, StepLocation
from automation_pipeline.audits.queries import steps as step_queries
from automation_pipeline.audits.queries.steps import (
    add_rerun,
    add_review,
    has_rerun,
    step_histories,
)
from automation_pipeline.audits.reviews import record_review, run_rerun
from automation_pipeline.storage.database import Database, Session
from automation_pipeline_tests.audits.configurations import NOW, add, add_audit
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.audits.rules.strategies import finding, point
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer
from automation_pipeline_tests.waiting import wait_until

AT = "2026-05-04T10:00:00.000Z"
OLD, NEW = ({"score": score, "conforme": "PARTIEL", "total_citations": 1} for score in (2, 3))


@pytest.fixture
def audit_id(database: Database) -> int:
    config_id = add(database)
    with database.transaction() as session:
        add_audit(session, config_id, total_steps=2)
    return 1


def test_reviews_and_reruns_are_read_by_step(database: Database, audit_id: int) -> None:
    verdicts = (
        {"statut": "ABSENT", "commentaire": "Vu."},
        {"statut": "PRESENT", "commentaire": "Vu."},
    )
    first = point(Statut.PRESENT)
    before = finding(first, point(Statut.ABSENT, text="Name"))
    after = finding(first, point(Statut.PRESENT, text="Name"))
    step_rerun = f"rerun-{audit_id}-2-e"
    with database.transaction() as session:
        add_review(session, StepLocation(audit_id, 1, 2), (before, after), None, None, NOW)
        add_rerun(
            session,
            Rerun(rerun_id=step_rerun, location=StepLocation(audit_id, 2)),
            (OLD, NEW),
            None,
            9,
            NOW,
        )
        point_rerun = Rerun(
            rerun_id="by hand", location=StepLocation(audit_id, 2, 1), instructions="Listen."
        )
        add_rerun(session, point_rerun, (NEW, OLD), "Name", 9, NOW)
    with database.reading() as session:
        histories = {
            position: history
            for (_, position), history in step_histories(session, [audit_id]).items()
        }
        assert step_histories(session, [7]) == {}
        assert (has_rerun(session, step_rerun), has_rerun(session, "another")) == (True, False)
    assert set(histories) == {1, 2}
    assert (histories[1]["rerun_history"], histories[2]["human_review"]) == ([], [])
    of_point = {"control_point_index": 2, "point": "Name"}
    review = {"at": AT, "by": None, "reason": None, "kind": "control_point"}
    assert histories[1]["human_review"] == [
        {**review, **of_point, "previous": verdicts[0], "override": verdicts[1]}
    ]
    assert histories[2]["rerun_history"] == [
        {"at": AT, "kind": "step_rerun", "rerun_id": step_rerun, "event_id": "e", "step_position": 2,
         "custom_prompt": None, "previous": OLD, "next": NEW},
        {"at": AT, "kind": "control_point_rerun", "rerun_id": "by hand", "event_id": None, "step_position": 2,
         "control_point_index": 1, "point": "Name", "custom_prompt": "Listen.", "previous": NEW, "next": OLD},
    ]  # fmt: skip


def test_a_second_rerun_with_the_same_id_is_refused(database: Database, audit_id: int) -> None:
    rerun = Rerun(rerun_id="once", location=StepLocation(audit_id, 1))
    with database.transaction() as session:
        add_rerun(session, rerun, (OLD, NEW), None, 9, NOW)
    with pytest.raises(IntegrityError), database.transaction() as session:
        add_rerun(session, rerun, (OLD, NEW), None, 9, NOW)


Change: TypeAlias = Callable[[AuditHarness, int], object]


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    """Two steps with 3 of 5 points each; the model now answers with full points."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    harness = AuditHarness(database, clock, model=model)
    harness.sell("1900417")
    harness.audit("1900417", harness.configure(steps=2))
    harness.model = FakeLanguageModel()
    return harness


def review_of_step(harness: AuditHarness, position: int) -> object:
    return record_review(
        StepLocation(1, position), {"conforme": "CONFORME", "score": 5}, database=harness.database
    )


def review_of_point(harness: AuditHarness, position: int) -> object:
    return record_review(
        StepLocation(1, position, 2), {"statut": "PRESENT"}, database=harness.database
    )


def rerun_of_step(harness: AuditHarness, position: int) -> object:
    rerun = Rerun(rerun_id="r", location=StepLocation(1, position))
    return asyncio.run(run_rerun(rerun, database=harness.database, judge=harness.judge))


def rerun_of_point(harness: AuditHarness, position: int) -> object:
    rerun = Rerun(rerun_id="r", location=StepLocation(1, position, 2))
    return asyncio.run(run_rerun(rerun, database=harness.database, judge=harness.judge))


def is_waiting_for_lock(database: Database) -> bool:
    """Always true on SQLite, which serialises writers and does not expose waits."""
    if database.dialect == "sqlite":
        return True
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with database.reading() as session:
        return bool(session.scalar(text(query)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (review_of_step, review_of_step),
        (review_of_point, review_of_step),
        (review_of_step, review_of_point),
        (review_of_step, rerun_of_step),
        (review_of_point, rerun_of_point),
        (rerun_of_step, review_of_step),
        (rerun_of_point, review_of_point),
    ],
)
def test_concurrent_changes_of_one_audit_are_not_lost(
    harness: AuditHarness, monkeypatch: pytest.MonkeyPatch, first: Change, second: Change
) -> None:
    started = False
    write = step_queries.update_audit_row

    def write_after_second_change(
        session: Session, audit_id: int, values: Mapping[str, object]
    ) -> None:
        nonlocal started
        if not started:
            started = True
            other = pool.submit(second, harness, 2)
            wait_until(lambda: other.done() or is_waiting_for_lock(harness.database))
        write(session, audit_id, values)

    monkeypatch.setattr(step_queries, "update_audit_row", write_after_second_change)
    with ThreadPoolExecutor(1) as pool:
        first(harness, 1)
    assert [step.finding.score for step in harness.steps()] == [5, 5]
    row = harness.row()
    assert (float(row.score_percentage), row.niveau) == (100.0, "EXCELLENT")
    assert row.result_data["audit"]["compliance"]["poids_obtenu"] == 10  # type: ignore[index]  # JSON
