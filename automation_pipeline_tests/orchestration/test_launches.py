"""Strict parsing of launch configs."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.models.schedules import parse_selection
from automation_pipeline.automation.runs import RunLaunch
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.orchestration.automation_runs import opening_tags, parse_launch

BARE: dict[str, Any] = {
    "schedule_id": 3,
    "override_fiche_selection": None,
    "due_at": None,
    "run_id": None,
}


RETRY = dg.DagsterRun("automation_run", run_id="d-2", root_run_id="d-1", parent_run_id="d-1")


def launch(**config: object) -> RunLaunch:
    return parse_launch({**BARE, **config}, RETRY, "host:1", 25)


def test_a_retry_keeps_the_root_run_id() -> None:
    opening = launch()
    assert (opening.schedule_id, opening.dagster_run_id, opening.dagster_root_run_id) == (
        3,
        "d-2",
        "d-1",
    )


def test_a_first_run_is_its_own_root() -> None:
    opening = parse_launch(BARE, dg.DagsterRun("automation_run", run_id="d-1"), "host:1", 25)
    assert opening.dagster_root_run_id == "d-1"


def test_due_at_is_parsed_to_utc() -> None:
    assert launch(due_at="2026-05-04T10:00:00+02:00").due_at == datetime(
        2026, 5, 4, 8, 0, tzinfo=UTC
    )


def test_a_selection_override_is_parsed_like_that_of_a_schedule() -> None:
    given = {"mode": "date_range", "dateRange": "yesterday", "maxFiches": 5, "onlyUnaudited": True}
    assert launch(override_fiche_selection=given).override == parse_selection(given)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"due_at": "tomorrow"}, "due_at is not an ISO instant"),
        ({"due_at": "2026-05-04T10:00:00"}, "due_at needs a time zone"),
        ({"override_fiche_selection": {"mode": "all"}}, "Invalid fiche selection data"),
    ],
)
def test_an_invalid_launch_config_is_rejected_with_the_reason(
    config: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        launch(**config)


@pytest.mark.parametrize(
    ("present", "trigger"), [({}, "launchpad"), ({"automation/trigger": "manual"}, "manual")]
)
def test_a_run_is_tagged_with_run_schedule_trigger_and_attempt(
    present: dict[str, str], trigger: str
) -> None:
    tags = opening_tags(RunAttempt(7, 1), 3, present)
    named = {"automation/run_id": "7", "automation/schedule_id": "3", "automation/trigger": trigger}
    assert tags == {**named, "automation/attempt": "1"}
    assert {type(value) for value in tags.values()} == {str}, "Dagster refuses anything else"
