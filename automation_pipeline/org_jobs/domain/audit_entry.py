"""What somebody did, as it is shown; and what a change comes to."""

from collections.abc import Mapping
from typing import Any

from automation_pipeline.core.json_model import Id, Instant, JsonModel


class AuditEntry(JsonModel):
    """`before` and `after` hold what was changed, and nothing else."""

    id: Id
    org_id: str
    actor: str
    action: str
    entity: str
    entity_id: str
    before: dict[str, Any] | None  # Any: JSON
    after: dict[str, Any] | None  # Any: JSON
    reason: str | None
    at: Instant


def differences(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Only the fields that differ, as they were and as they are."""
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}
