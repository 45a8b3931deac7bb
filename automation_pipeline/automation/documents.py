"""Schedules, runs and run reports as JSON documents, shared by the HTTP API and the command
line."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from automation_pipeline.automation.models.reports import RunReport
from automation_pipeline.automation.models.runs import OutcomeStatus
from automation_pipeline.automation.models.schedules import Schedule, cron_expression_of
from automation_pipeline.automation.rules.due import next_due
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, UpstreamError
from automation_pipeline.core.json_model import Instant, as_document


class ScheduleShown(Schedule):
    """A schedule with its next run time. The document masks the CRM key: it shows only whether the
    schedule has one."""

    external_api_key: Literal["**********"] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]  the serialised form
    next_due_at: Instant | None


def schedule_document(schedule: Schedule, now: datetime) -> Mapping[str, object]:
    due_at = next_due_or_never(schedule, now)
    derived = {"cronExpression": cron_expression_of(schedule), "nextDueAt": due_at and iso(due_at)}
    return {**as_document(schedule), **derived}


def next_due_or_never(schedule: Schedule, now: datetime) -> datetime | None:
    """The next due time, or None if the stored schedule is no longer valid."""
    try:
        return next_due(schedule, now)
    except InvalidInputError:
        return None


def without_fiche_ids(detail: Mapping[str, object]) -> Mapping[str, object]:
    """A run for callers of limited reach, without fiche ids: its selection and its log details may
    name fiches outside their reach."""
    logs = [
        without_details(line) for line in cast("Sequence[Mapping[str, object]]", detail["logs"])
    ]
    snapshot = cast("Mapping[str, object]", detail["configSnapshot"])
    unnamed = {name: _unnamed(result) for name, result in snapshot.items()}
    return {**detail, "configSnapshot": unnamed, "resultSummary": {}, "logs": logs}


def without_details(line: Mapping[str, object]) -> Mapping[str, object]:
    return {**line, "metadata": {}}


def _unnamed(given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    selection = cast("Mapping[str, object]", given)
    return {name: value for name, value in selection.items() if name != "ficheIds"}


# A stack trace is only for developers with access to the database.
_HIDDEN_DETAIL = "stack"


def report_document(report: RunReport) -> dict[str, Any]:
    document: dict[str, Any] = _reports().dump_python(
        report, mode="json", by_alias=True, exclude={"causes"}
    )
    details = document["run"]["errorDetails"]
    result = (
        None
        if details is None
        else {name: value for name, value in details.items() if name != _HIDDEN_DETAIL}
    )
    causes = [
        {"status": status, "reason": why, "fiches": count}
        for (status, why), count in report.causes.items()
    ]
    return {**document, "run": {**document["run"], "errorDetails": result}, "causes": causes}


def parse_report(document: Mapping[str, Any]) -> RunReport:
    """OutsideError: the document is not a report."""
    try:
        causes = {
            (OutcomeStatus(one["status"]), one["reason"]): one["fiches"]
            for one in document["causes"]
        }
        return _reports().validate_python({**document, "causes": causes})
    except (ValidationError, KeyError, TypeError, ValueError):
        raise UpstreamError(
            "The report of the run cannot be read: the API is of another version"
        ) from None


@cache
def _reports() -> TypeAdapter[RunReport]:
    return TypeAdapter(RunReport)
