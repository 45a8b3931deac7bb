"""The report of a run as JSON, and back: the page of a run can be written elsewhere than where its database is."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from automation_pipeline.automation.domain.run import OutcomeStatus
from automation_pipeline.automation.domain.run_report import RunReport
from automation_pipeline.core.errors import OutsideError

# What a bug leaves behind is for those who read the database.
_UNTOLD = "stack"


def report_document(report: RunReport) -> dict[str, Any]:
    document: dict[str, Any] = _reports().dump_python(report, mode="json", by_alias=True, exclude={"causes"})
    details = document["run"]["errorDetails"]
    told = None if details is None else {name: value for name, value in details.items() if name != _UNTOLD}
    causes = [{"status": status, "reason": why, "fiches": count} for (status, why), count in report.causes.items()]
    return {**document, "run": {**document["run"], "errorDetails": told}, "causes": causes}


def parse_report(document: Mapping[str, Any]) -> RunReport:
    """OutsideError: this is no report."""
    try:
        causes = {(OutcomeStatus(one["status"]), one["reason"]): one["fiches"] for one in document["causes"]}
        return _reports().validate_python({**document, "causes": causes})
    except (ValidationError, KeyError, TypeError, ValueError):
        raise OutsideError("The report of the run cannot be read: the API is of another version") from None


@cache
def _reports() -> TypeAdapter[RunReport]:
    return TypeAdapter(RunReport)
