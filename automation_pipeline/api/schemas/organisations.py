"""Organisations, their hosts and servers as the API takes them."""

from collections.abc import Mapping

from pydantic import Field

from automation_pipeline.core.json_model import JsonModel

ACME: Mapping[str, object] = {"id": "acme", "name": "Acme Hosting", "maxRunning": 20}
FEWER: Mapping[str, object] = {"maxRunning": 5, "maintenanceUntil": "2027-01-10T04:00:00Z"}
HOST: Mapping[str, object] = {"name": "rack-1"}
HOST_CHANGE: Mapping[str, object] = {"maintenanceUntil": "2027-01-10T04:00:00Z"}
SERVER: Mapping[str, object] = {"name": "valheim-1", "hostId": "12"}
SERVER_CHANGE: Mapping[str, object] = {"isEnabled": False}
UNPAID: Mapping[str, object] = {"reason": "The invoice of March is open"}
MISTAKEN: Mapping[str, object] = {"reason": "The wrong month"}


class ReasonInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)
