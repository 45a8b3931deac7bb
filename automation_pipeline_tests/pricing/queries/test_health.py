"""What alerts are made of: the last hour's targets, the dead letters, the refusals; by project, in
few queries."""

from datetime import timedelta

import pytest
from sqlalchemy import event

from automation_pipeline.pricing.models.history import ProjectHealth
from automation_pipeline.pricing.queries.monitoring import health_of_projects
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.transitions import Transition, record_transitions
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.ended import a_shop, an_ended_run, change_targets
from automation_pipeline_tests.pricing.kept import a_rule, a_run

AN_HOUR, A_SECOND = timedelta(hours=1), timedelta(seconds=1)


def health(database: Database, clock: StandingClock) -> dict[str, ProjectHealth]:
    with database.reading() as session:
        return health_of_projects(session, clock.now())


def test_where_nothing_ever_happened_there_is_nothing_to_say(
    database: Database, clock: StandingClock
) -> None:
    assert health(database, clock) == {}


def test_each_project_has_its_own(database: Database, clock: StandingClock) -> None:
    an_ended_run(database, clock, 3, 1, project_id="shoes")
    an_ended_run(database, clock, 2, 0, project_id="shoes")
    an_ended_run(database, clock, 0, 2, project_id="hats")
    assert health(database, clock) == {
        "shoes": ProjectHealth(applied=5, failed=1, dead_letters=1),
        "hats": ProjectHealth(failed=2, dead_letters=2),
    }


@pytest.mark.parametrize(
    ("ended", "counted"), [(AN_HOUR - A_SECOND, 2), (AN_HOUR, 0), (AN_HOUR * 3, 0)]
)
def test_only_what_ended_within_the_hour_counts(
    database: Database, clock: StandingClock, ended: timedelta, counted: int
) -> None:
    an_ended_run(database, clock, 2, 0, ended=ended)
    assert health(database, clock) == ({"default": ProjectHealth(applied=2)} if counted else {})


def test_a_run_that_is_at_work_does_not_count_yet(database: Database, clock: StandingClock) -> None:
    a_run(database, a_rule(database, clock), "APPLYING", clock.now(), ["APPLIED", "QUEUED"])
    assert health(database, clock) == {}


def test_what_was_cancelled_was_not_tried(database: Database, clock: StandingClock) -> None:
    run_id = an_ended_run(database, clock, 2, 3)
    change_targets(database, run_id, first=2, error_type="cancelled")
    assert health(database, clock)["default"] == ProjectHealth(applied=2, failed=1, dead_letters=3)


def test_what_was_rolled_back_since_was_applied_then(
    database: Database, clock: StandingClock
) -> None:
    targets = ["ROLLED_BACK"] * 5 + ["APPLIED"]
    a_run(database, a_rule(database, clock), "APPLIED", clock.now() - timedelta(minutes=5), targets)
    assert health(database, clock) == {"default": ProjectHealth(applied=6)}


def test_of_a_retried_run_only_the_last_cycle_counts(
    database: Database, clock: StandingClock
) -> None:
    run_id = an_ended_run(database, clock, 5, 3, retry_cycle=1)
    change_targets(database, run_id, last_attempt=clock.now() - timedelta(days=1))
    change_targets(database, run_id, first=1, last_attempt=clock.now() - timedelta(minutes=31))
    with database.transaction() as session:
        begun = (clock.now() - timedelta(days=1, minutes=1), clock.now() - timedelta(minutes=32))
        moves = [
            Transition("rule run", str(run_id), "QUEUED", "APPLYING", "worker", at) for at in begun
        ]
        record_transitions(session, moves)
    assert health(database, clock)["default"] == ProjectHealth(failed=1, dead_letters=3)


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ({}, 2),
        ({"last_attempt": timedelta(days=90)}, 2),
        ({"last_attempt": timedelta(days=90, seconds=1)}, 1),
        ({"acknowledged_at": timedelta(0)}, 1),
    ],
)
def test_dead_letters_are_failures_that_are_kept_and_nobody_has_acknowledged(
    database: Database, clock: StandingClock, values: dict[str, timedelta], left: int
) -> None:
    run_id = an_ended_run(database, clock, 0, 2, ended=timedelta(days=2))
    if values:
        change_targets(
            database, run_id, first=1, **{name: clock.now() - ago for name, ago in values.items()}
        )
    assert health(database, clock) == {"default": ProjectHealth(dead_letters=left)}


def test_a_run_that_was_rolled_back_has_no_dead_letters(
    database: Database, clock: StandingClock
) -> None:
    an_ended_run(database, clock, 0, 2, ended=timedelta(days=2), status="ROLLED_BACK")
    assert health(database, clock) == {}


def test_refusals_are_told_to_whoever_had_a_run_at_work_there(
    database: Database, clock: StandingClock
) -> None:
    a_shop(database, 1, 100, 200, 400)  # the last one is too long ago
    a_shop(database, 1, 1, shop="other.example")
    a_run(database, a_rule(database, clock, project_id="busy"), "APPLYING", clock.now(), ["QUEUED"])
    a_run(
        database,
        a_rule(database, clock, project_id="planning"),
        "PREVIEW",
        clock.now(),
        wish="apply",
    )
    a_run(database, a_rule(database, clock, project_id="looking"), "PREVIEW", clock.now())
    a_run(
        database,
        a_rule(database, clock, project_id="elsewhere"),
        "QUEUED",
        clock.now(),
        shop="quiet.example",
    )
    for project, minutes in (("done", 4), ("earlier", 6)):
        at = clock.now() - timedelta(minutes=minutes)
        a_run(database, a_rule(database, clock, project_id=project), "APPLIED", at)
    assert health(database, clock) == dict.fromkeys(
        ("busy", "done", "planning"), ProjectHealth(rate_limits=3)
    )


def test_the_number_of_queries_does_not_depend_on_what_is_there(
    database: Database, clock: StandingClock
) -> None:
    asked: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    health(database, clock)
    few = len(asked)
    for project in ("a", "b", "c", "d"):
        an_ended_run(database, clock, 2, 2, project_id=project)
    a_shop(database, 1)
    asked.clear()
    health(database, clock)
    assert len(asked) == few <= 6
