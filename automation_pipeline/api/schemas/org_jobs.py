"""Jobs of organisations as the API takes them, and what is asked of them."""

from collections.abc import Mapping

from pydantic import Field

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.field_rules import Flag

BACKUP: Mapping[str, object] = {"type": "SAVE_BACKUP", "serverInstanceId": "12"}
WARM: Mapping[str, object] = {"type": "HTTPS_CALL", "payload": {"url": "https://example.com/warm"}, "priority": 2}
SUPERSEDED: Mapping[str, object] = {"reason": "Done by hand"}


class CancelJobInput(JsonModel):
    """`atOnce`: it has ended now, whatever whoever is at it still does."""

    reason: str | None = Field(default=None, max_length=1000)
    at_once: Flag = False
