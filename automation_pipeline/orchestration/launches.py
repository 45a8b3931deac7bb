"""What a launch says, read strictly: the launchpad checks types only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg

from automation_pipeline.automation.domain.schedule import parse_selection
from automation_pipeline.automation.stages.open_run import Opening
from automation_pipeline.core.errors import InvalidInputError


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
    )


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"due_at is not an ISO instant: {text!r}.") from None
    if instant.tzinfo is None:
        raise InvalidInputError(f"due_at needs a time zone: {text!r}.")
    return instant
