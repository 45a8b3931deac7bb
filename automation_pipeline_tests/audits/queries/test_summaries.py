"""The summary of an audit is of all its steps, also when two of them are changed at the same
moment."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pytest
from sqlalchemy import text

from automation_pipeline.audits.models.audits import Rerun, StepLocation
from automation_pipeline.audits.queries import steps as summaries
from automation_pipeline.audits.reviews import record_review, run_rerun
from automation_pipeline.storage.database import Database, Session
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer
from automation_pipeline_tests.waiting import wait_until

Change: TypeAlias = Callable[[Bench, int], object]


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """Two steps, 3 of 5 points each; the model thinks better of them now."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    bench = Bench(database, clock, model=model)
    bench.sell("1900417")
    bench.audit("1900417", bench.configure(steps=2))
    bench.model = FakeLanguageModel()
    return bench


def review_of_step(bench: Bench, position: int) -> object:
    return record_review(
        StepLocation(1, position), {"conforme": "CONFORME", "score": 5}, database=bench.database
    )


def review_of_point(bench: Bench, position: int) -> object:
    return record_review(
        StepLocation(1, position, 2), {"statut": "PRESENT"}, database=bench.database
    )


def rerun_of_step(bench: Bench, position: int) -> object:
    rerun = Rerun(rerun_id="r", place=StepLocation(1, position))
    return asyncio.run(run_rerun(rerun, database=bench.database, judge=bench.judge))


def rerun_of_point(bench: Bench, position: int) -> object:
    rerun = Rerun(rerun_id="r", place=StepLocation(1, position, 2))
    return asyncio.run(run_rerun(rerun, database=bench.database, judge=bench.judge))


def somebody_waits(database: Database) -> bool:
    """For a lock. SQLite, whose writers take turns as wholes, does not tell, and has no need to."""
    if database.dialect == "sqlite":
        return True
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with database.reading() as session:
        return bool(session.scalar(text(waiting)))


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
def test_a_change_that_begins_when_another_has_read_the_steps_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, first: Change, second: Change
) -> None:
    begun = False
    write = summaries.update_audit_row

    def write_late(session: Session, audit_id: int, values: Mapping[str, object]) -> None:
        nonlocal begun
        if not begun:
            begun = True
            other = pool.submit(second, bench, 2)
            wait_until(lambda: other.done() or somebody_waits(bench.database))
        write(session, audit_id, values)

    monkeypatch.setattr(summaries, "update_audit_row", write_late)
    with ThreadPoolExecutor(1) as pool:
        first(bench, 1)
    assert [step.finding.score for step in bench.steps()] == [5, 5]
    row = bench.row()
    assert (float(row.score_percentage), row.niveau) == (100.0, "EXCELLENT")
    assert row.result_data["audit"]["compliance"]["poids_obtenu"] == 10  # type: ignore[index]  # JSON
