"""What a launch says, read strictly: the launchpad checks types only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from automation_pipeline.automation.domain.run import RunTicket, Trigger
from automation_pipeline.automation.domain.selection import parse_selection
from automation_pipeline.automation.stages.open_run import Opening
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.orchestration.tickets import ATTEMPT_TAG, RUN_ID_TAG

# Dagster puts it on runs that it retries by itself.
RETRY_TAG = "dagster/retry_number"


def parse_launch(config: Mapping[str, Any], dagster_run: dg.DagsterRun, worker: str) -> Opening:
    override, due_at = config["override_fiche_selection"], config["due_at"]
    return Opening(
        schedule_id=config["schedule_id"],
        run_id=config["run_id"],
        due_at=None if due_at is None else _instant(due_at),
        override=None if override is None else parse_selection(override),
        dagster_run_id=dagster_run.run_id,
        dagster_root_run_id=dagster_run.root_run_id or dagster_run.run_id,
        worker=worker,
        is_retry=RETRY_TAG in dagster_run.tags,
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
