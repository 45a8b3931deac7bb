"""What a launch says, read strictly: the launchpad checks types only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from automation_pipeline.automation.domain.run import RunTicket, Trigger
from automation_pipeline.automation.domain.selection import parse_selection
from automation_pipeline.automation.stages.open_run import Opening
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.orchestration.requests import LAUNCH_TAG
from automation_pipeline.orchestration.tickets import ATTEMPT_TAG, RUN_ID_TAG

# The business outcome of a run, to filter Dagster's runs by.
STATUS_TAG = "automation/status"


def parse_launch(
    config: Mapping[str, Any], dagster_run: dg.DagsterRun, worker: str, lost_after_seconds: float
) -> Opening:
    override, due_at = config["override_fiche_selection"], config["due_at"]
    return Opening(
        schedule_id=config["schedule_id"],
        run_id=config["run_id"],
        due_at=None if due_at is None else _instant(due_at),
        override=None if override is None else parse_selection(override),
        dagster_run_id=dagster_run.run_id,
        dagster_root_run_id=dagster_run.root_run_id or dagster_run.run_id,
        worker=worker,
        is_next=int(dagster_run.tags.get(LAUNCH_TAG, "1")) > 1,
        is_repeat=dagster_run.parent_run_id is not None,
        lost_after_seconds=lost_after_seconds,
    )


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"due_at is not an ISO instant: {text!r}.") from None
    if instant.tzinfo is None:
        raise InvalidInputError(f"due_at needs a time zone: {text!r}.")
    return instant


def opening_tags(ticket: RunTicket, schedule_id: int, present: Mapping[str, str]) -> dict[str, str]:
    """The ticket, for the steps after; and what a run opened from the launchpad lacks, and a requested one has."""
    return {
        RUN_ID_TAG: str(ticket.run_id),
        ATTEMPT_TAG: str(ticket.attempt),
        "automation/schedule_id": str(schedule_id),
        "automation/trigger": present.get("automation/trigger", Trigger.LAUNCHPAD.value),
    }
