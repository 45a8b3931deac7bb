"""Signs of life of steps: who began what how often, who is silent, and what is left when a step ends."""

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.step_beats import (
    beat_step,
    beats,
    begin_step,
    end_step,
    forget_steps,
    take_over_step,
)


def shown(database: Database, dagster_run_id: str | None = None) -> list[tuple[str, str, str]]:
    with database.reading() as session:
        return sorted((beat.dagster_run_id, beat.step_key, beat.worker) for beat in beats(session, dagster_run_id))


def test_a_step_is_begun_once(database: Database) -> None:
    with database.transaction() as session:
        assert begin_step(session, "d-1", "work[1]", "host:1") is True
        assert begin_step(session, "d-1", "work[1]", "host:2") is False
        assert begin_step(session, "d-2", "work[1]", "host:2") is True
    assert shown(database, "d-1") == [("d-1", "work[1]", "host:1")]


def test_a_step_that_is_taken_over_belongs_to_the_last_and_is_counted(database: Database) -> None:
    with database.transaction() as session:
        begin_step(session, "d-1", "work[1]", "host:1")
        beat_step(session, "d-1", "work[1]", "host:1")
        assert take_over_step(session, "d-1", "work[1]", "host:2") == 2
    assert shown(database) == [("d-1", "work[1]", "host:2")]


def test_beating_moves_the_beat_and_counts_nothing(database: Database) -> None:
    with database.transaction() as session:
        begin_step(session, "d-1", "work[1]", "host:1")
    with database.reading() as session:
        first = beats(session)[0]
    with database.transaction() as session:
        beat_step(session, "d-1", "work[1]", "host:1")
    with database.reading() as session:
        second = beats(session)[0]
    assert second.beat_at > first.beat_at
    assert first.now >= first.beat_at
    with database.transaction() as session:
        assert take_over_step(session, "d-1", "work[1]", "host:1") == 2


def test_the_end_of_a_step_leaves_those_of_others_and_a_copy_elsewhere(database: Database) -> None:
    with database.transaction() as session:
        for run, step, worker in (("d-1", "a", "host:1"), ("d-1", "b", "host:1"), ("d-2", "a", "host:1")):
            begin_step(session, run, step, worker)
        take_over_step(session, "d-1", "a", "host:2")
        end_step(session, "d-1", "a", "host:1")
        end_step(session, "d-1", "b", "host:1")
    assert shown(database) == [("d-1", "a", "host:2"), ("d-2", "a", "host:1")]
    assert shown(database, "d-2") == [("d-2", "a", "host:1")]


def test_some_or_all_steps_of_a_run_are_forgotten(database: Database) -> None:
    with database.transaction() as session:
        for run, step in (("d-1", "a"), ("d-1", "b"), ("d-1", "c"), ("d-2", "a")):
            begin_step(session, run, step, "host:1")
        forget_steps(session, "d-1", ["a"])
    assert shown(database, "d-1") == [("d-1", "b", "host:1"), ("d-1", "c", "host:1")]
    with database.transaction() as session:
        forget_steps(session, "d-1", [])
        forget_steps(session, "d-1")
    assert shown(database) == [("d-2", "a", "host:1")]
