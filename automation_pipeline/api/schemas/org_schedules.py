"""Schedules of organisations as the API takes them, and what is asked of them."""

from collections.abc import Mapping

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.field_rules import Flag
from automation_pipeline.org_jobs.domain.org_schedule import ScheduleInput
from automation_pipeline.org_jobs.domain.schedule_fields import Payload

RESTART: Mapping[str, object] = {
    "name": "Nightly restart",
    "serverInstanceId": "12",
    "cronExpression": "30 4 * * *",
    "timezone": "Europe/Paris",
    "jobType": "SERVER_RESTART",
    "executionWindowStart": "02:00",
    "executionWindowEnd": "06:00",
    "retryPolicy": {"maxRetries": 3, "backoffMs": 60000, "backoffType": "exponential"},
}
CALL: Mapping[str, object] = {
    "name": "Warm the cache",
    "cronExpression": "*/15 * * * *",
    "jobType": "HTTPS_CALL",
    "payload": {"url": "https://example.com/warm"},
    "overlapPolicy": "SKIP",
}
CHANGE: Mapping[str, object] = {"cronExpression": "0 5 * * *", "description": None}
HOLIDAYS: Mapping[str, object] = {"reason": "Closed for the holidays", "until": "2027-01-04T06:00:00Z"}
EVENT: Mapping[str, object] = {"reason": "The players have a tournament"}
NOW: Mapping[str, object] = {"ignoreWindow": True}
NIGHTS: Mapping[str, object] = {
    "from": "2026-05-01T00:00:00Z",
    "until": "2026-05-03T23:59:59Z",
    "behaviour": "failed",
    "dryRun": True,
}


class OrgScheduleInput(ScheduleInput):
    """Once more under a name of its own: automations have schedules too."""


class RunNowInput(JsonModel):
    """`payload` replaces that of the schedule, this once. Outside its execution window it is refused, unless that is
    ignored."""

    payload: Payload | None = None
    ignore_window: Flag = False
