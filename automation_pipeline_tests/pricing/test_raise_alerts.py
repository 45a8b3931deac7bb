"""Alerts are raised strictly beyond their boundaries, once until their cooldown is over, and once
by two copies."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.pricing.monitoring import raise_alerts
from automation_pipeline.pricing.queries.monitoring import list_alerts
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.ended import (
    EVERY_ALERT,
    a_shop,
    alert_rows,
    an_ended_run,
    change_targets,
    raise_many,
)
from automation_pipeline_tests.pricing.kept import a_rule, a_run
from automation_pipeline_tests.processes import CREW, at_once

LONG_AGO = timedelta(days=2)


def raised(
    database: Database, clock: StandingClock, *, webhooks: Mapping[AlertSeverity, str] = EVERY_ALERT
) -> list[tuple[str, str, str]]:
    found = raise_alerts(database=database, clock=clock, webhooks=webhooks)
    return [(one.project_id, one.name, one.severity) for one in found]


@pytest.mark.parametrize(
    ("applied", "failed", "severity"),
    [
        (97, 3, None),
        (96, 4, "warning"),
        (90, 10, "warning"),
        (89, 11, "critical"),
        (9, 10, None),
        (10, 10, "critical"),
    ],
)
def test_the_success_of_the_hour_is_judged_strictly(
    database: Database, clock: StandingClock, applied: int, failed: int, severity: str | None
) -> None:
    an_ended_run(database, clock, applied, failed)
    assert raised(database, clock) == ([("default", "success_rate", severity)] if severity else [])


@pytest.mark.parametrize(
    ("letters", "severity"), [(50, None), (51, "warning"), (100, "warning"), (101, "critical")]
)
def test_the_dead_letters_are_judged_strictly(
    database: Database, clock: StandingClock, letters: int, severity: str | None
) -> None:
    an_ended_run(database, clock, 1, letters, ended=LONG_AGO)
    assert raised(database, clock) == ([("default", "dlq_size", severity)] if severity else [])


@pytest.mark.parametrize(("refusals", "is_raised"), [(3, False), (4, True)])
def test_the_refusals_of_five_minutes_are_judged_strictly(
    database: Database, clock: StandingClock, refusals: int, is_raised: bool
) -> None:
    a_shop(database, *[10.0] * refusals)
    a_run(database, a_rule(database, clock), "APPLYING", clock.now(), ["QUEUED"])
    assert raised(database, clock) == ([("default", "rate_limits", "warning")] if is_raised else [])


def test_an_open_circuit_is_a_critical_alert_of_the_projects_that_call_the_shop(
    database: Database, clock: StandingClock
) -> None:
    a_shop(database, circuit="open")
    assert raised(database, clock) == []
    a_run(database, a_rule(database, clock), "APPLYING", clock.now(), ["QUEUED"])
    assert raised(database, clock) == [("default", "circuit_open", "critical")]


def test_an_alert_is_kept_as_a_row_that_says_what_is_wrong(
    database: Database, clock: StandingClock
) -> None:
    an_ended_run(database, clock, 89, 11, project_id="shoes")
    raised(database, clock)
    [row] = alert_rows(database)
    assert (row.project_id, row.name, row.severity, row.raised_at) == (
        "shoes",
        "success_rate",
        "critical",
        clock.now(),
    )
    assert row.message == "Only 89.0% of 100 price changes succeeded."
    assert (row.status, row.attempts) == ("pending", 0)


def test_without_a_webhook_it_is_only_kept(database: Database, clock: StandingClock) -> None:
    an_ended_run(database, clock, 89, 11)
    raised(database, clock, webhooks={AlertSeverity.WARNING: "https://hooks.example.com"})
    assert [row.status for row in alert_rows(database)] == ["unsent"]


@pytest.mark.parametrize(
    ("letters", "severity", "minutes"), [(51, "warning", 30), (101, "critical", 15)]
)
def test_it_is_raised_again_when_its_cooldown_is_over(
    database: Database, clock: StandingClock, letters: int, severity: str, minutes: int
) -> None:
    an_ended_run(database, clock, 1, letters, ended=LONG_AGO)
    once = [("default", "dlq_size", severity)]
    assert [raised(database, clock), raised(database, clock)] == [once, []]
    clock.pass_time(timedelta(minutes=minutes) - timedelta(seconds=1))
    assert raised(database, clock) == []
    clock.pass_time_a_second()
    assert raised(database, clock) == once


def test_what_has_become_worse_is_raised_at_once_and_what_is_better_is_not(
    database: Database, clock: StandingClock
) -> None:
    run_id = an_ended_run(database, clock, 1, 101, ended=LONG_AGO)
    change_targets(database, run_id, first=10, acknowledged_at=clock.now())
    assert raised(database, clock) == [("default", "dlq_size", "warning")]
    change_targets(database, run_id, acknowledged_at=None)
    assert raised(database, clock) == [("default", "dlq_size", "critical")]
    change_targets(database, run_id, first=10, acknowledged_at=clock.now())
    assert raised(database, clock) == []


def test_projects_do_not_keep_each_other_quiet(database: Database, clock: StandingClock) -> None:
    an_ended_run(database, clock, 10, 11, project_id="shoes")
    assert raised(database, clock) == [("shoes", "success_rate", "critical")]
    an_ended_run(database, clock, 10, 11, project_id="hats")
    assert raised(database, clock) == [("hats", "success_rate", "critical")]


def test_several_processes_at_once_raise_each_alert_once(
    database: Database, database_url: str, clock: StandingClock
) -> None:
    an_ended_run(database, clock, 89, 11, project_id="shoes")
    an_ended_run(database, clock, 10, 60, project_id="hats")
    counts = at_once(raise_many, *[(database_url, f"{clock.now():%Y-%m-%dT%H:%M}", 5)] * CREW)
    assert sum(counts) == 3
    named = [(row.project_id, row.name) for row in alert_rows(database)]
    assert sorted(named) == [
        ("hats", "dlq_size"),
        ("hats", "success_rate"),
        ("shoes", "success_rate"),
    ]


def test_alerts_are_listed_newest_first_by_project(
    database: Database, clock: StandingClock
) -> None:
    an_ended_run(database, clock, 10, 60, project_id="hats")
    raised(database, clock)
    an_ended_run(database, clock, 10, 11, project_id="shoes")
    raised(database, clock)
    with database.reading() as session:
        everything, page = list_alerts(session, None, 9, 0), list_alerts(session, None, 1, 1)
        of_hats = list_alerts(session, "hats", 9, 0)
        of_gloves = list_alerts(session, "gloves", 9, 0)
    assert [one.project_id for one in everything] == ["shoes", "hats", "hats"]
    assert (page, of_hats) == (everything[1:2], everything[1:])
    assert of_gloves == []
