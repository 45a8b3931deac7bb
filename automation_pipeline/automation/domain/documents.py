"""Schedules, occurrences and runs as JSON: the same for the HTTP API and the command line."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, cast

from automation_pipeline.automation.domain.occurrences import next_due
from automation_pipeline.automation.domain.schedule import Schedule, cron_expression_of
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import Instant, as_document


class ScheduleShown(Schedule):
    """A schedule, and when it is run next. The key of the CRM is never shown, only that there is one."""

    external_api_key: Literal["**********"] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]  as it is written
    next_due_at: Instant | None


def schedule_document(schedule: Schedule, now: datetime) -> Mapping[str, object]:
    due_at = next_due_or_never(schedule, now)
    derived = {"cronExpression": cron_expression_of(schedule), "nextDueAt": due_at and iso(due_at)}
    return {**as_document(schedule), **derived}


def next_due_or_never(schedule: Schedule, now: datetime) -> datetime | None:
    """Also None for one that went wrong since it was stored."""
    try:
        return next_due(schedule, now)
    except InvalidInputError:
        return None


def without_fiches(detail: Mapping[str, object]) -> Mapping[str, object]:
    """A run as those of limited reach may see it: which fiches it was told to take, and what its log says of single
    ones, may reach further than they do."""
    logs = [without_details(line) for line in cast("Sequence[Mapping[str, object]]", detail["logs"])]
    snapshot = cast("Mapping[str, object]", detail["configSnapshot"])
    unnamed = {name: _unnamed(said) for name, said in snapshot.items()}
    return {**detail, "configSnapshot": unnamed, "resultSummary": {}, "logs": logs}


def without_details(line: Mapping[str, object]) -> Mapping[str, object]:
    return {**line, "metadata": {}}


def _unnamed(said: object) -> object:
    if not isinstance(said, Mapping):
        return said
    selection = cast("Mapping[str, object]", said)
    return {name: value for name, value in selection.items() if name != "ficheIds"}
