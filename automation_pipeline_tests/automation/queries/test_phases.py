"""Tests of stored run phases: entries per attempt, and metrics recorded once at the end."""

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.models.runs import Phase, RunAttempt
from automation_pipeline.automation.queries.runs import (
    StaleAttemptError,
    enter_phase,
    time_by_phase,
)
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.automation.tables import RunPhaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import all_metrics
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.factories import make_launch, make_open_run
from automation_pipeline_tests.fakes.clock import FakeClock


def enter(database: Database, run_attempt: RunAttempt, *phases: Phase) -> None:
    for phase in phases:
        with database.transaction() as session:
            enter_phase(session, run_attempt, phase)


def entered(database: Database) -> list[tuple[int, str]]:
    with database.reading() as session:
        query = select(RunPhaseRow.attempt, RunPhaseRow.phase).order_by(
            RunPhaseRow.attempt, RunPhaseRow.entered_at
        )
        return [*session.execute(query).tuples()]


def push_back(database: Database, phase: Phase, seconds: float) -> None:
    with database.transaction() as session:
        rows = update(RunPhaseRow).where(RunPhaseRow.phase == phase)
        session.execute(rows.values(entered_at=database_now(-seconds)))


def test_the_first_entry_into_a_phase_is_kept(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock)
    enter(database, run_attempt, Phase.FETCHING, Phase.TRANSCRIBING)
    push_back(database, Phase.TRANSCRIBING, 60)
    enter(database, run_attempt, Phase.AUDITING, Phase.TRANSCRIBING, Phase.TRANSCRIBING)
    assert sorted(phase for _, phase in entered(database)) == [
        "auditing",
        "fetching",
        "selection",
        "transcribing",
    ]
    with database.reading() as session:
        lengths = {each.phase: each.seconds for each in time_by_phase(session, run_attempt.run_id)}
    assert 55 < lengths[Phase.TRANSCRIBING] < 65


def test_each_attempt_records_its_own_phase_entries(database: Database, clock: FakeClock) -> None:
    first = make_open_run(database, clock)
    enter(database, first, Phase.FETCHING)
    second = open_run(
        make_launch(1, "d-2", dagster_root_run_id="dagster-1"), database=database, clock=clock
    )
    enter(database, second, Phase.FETCHING)
    with pytest.raises(StaleAttemptError):
        enter(database, first, Phase.AUDITING)
    assert entered(database) == [
        (1, "selection"),
        (1, "fetching"),
        (2, "selection"),
        (2, "fetching"),
    ]
    with database.reading() as session:
        assert [each.phase for each in time_by_phase(session, first.run_id)] == [
            Phase.SELECTION,
            Phase.FETCHING,
        ]


def test_finishing_a_run_twice_records_its_metrics_once(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    enter(database, run_attempt, Phase.FETCHING)
    push_back(database, Phase.SELECTION, 90)
    push_back(database, Phase.FETCHING, 30)
    clock.advance(timedelta(days=1))  # phases are measured with the database clock
    for _ in range(2):
        finalise_run(run_attempt.run_id, database=database, clock=clock, breakdown="It broke")
    with database.reading() as session:
        measures = {(each.name, each.labels): each.value for each in all_metrics(session)}
        lengths = {each.phase: each.seconds for each in time_by_phase(session, run_attempt.run_id)}
    for phase, seconds in {"selection": 60, "fetching": 30, "finalizing": 0}.items():
        assert measures["phases_total", f'phase="{phase}"'] == 1
        assert seconds <= measures["phase_seconds_total", f'phase="{phase}"'] + 0.01 < seconds + 20
        assert seconds <= lengths[Phase(phase)] + 0.01 < seconds + 20
