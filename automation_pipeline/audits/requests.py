"""Requests of audits and reruns. Each files a run request and returns its id immediately."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from automation_pipeline.audits.models.audits import RequestedAudit, StepLocation, rerun_id
from automation_pipeline.audits.models.requests import INVALID_REQUEST
from automation_pipeline.audits.queries.audits import get_changeable_audit
from automation_pipeline.audits.queries.configs import get_config
from automation_pipeline.audits.queries.requests import add_batch, check_automation_links
from automation_pipeline.audits.queries.steps import get_step
from automation_pipeline.audits.rules.reviews import validate_instructions
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests

AUDIT_JOB = "audit_fiche"
RERUN_JOB = "audit_rerun"


@dataclass(frozen=True, kw_only=True)
class AuditRequestOptions:
    """Options of the requested audits. A `batch` has one status for all. `schedule_id` and `run_id` name
    the automation."""

    audit_config_id: int
    use_rlm: bool = False
    trigger_source: str = "api"
    user_id: str | None = None
    batch: bool = False
    schedule_id: int | None = None
    run_id: int | None = None

    @property
    def linkage(self) -> dict[str, int | None]:
        return {"automation_schedule_id": self.schedule_id, "automation_run_id": self.run_id}


@dataclass(frozen=True)
class FiledAudits:
    audits: Sequence[RequestedAudit]
    batch_id: str | None


def request_audits(
    fiche_ids: Sequence[str], options: AuditRequestOptions, *, database: Database, clock: Clock
) -> FiledAudits:
    """File one request per distinct fiche. An inactive configuration is allowed.

    Raises NotFoundError for an unknown configuration, InvalidInputError for an unknown automation.
    """
    now, config_id = clock.now(), options.audit_config_id
    batch_id = str(uuid.uuid4()) if options.batch else None
    prefix, suffix = f"batch-{batch_id}-", ""
    if batch_id is None:
        prefix, suffix = "", f"-{round(now.timestamp() * 1000)}"
    audits = [
        RequestedAudit(fiche_id, f"{prefix}audit-{fiche_id}-{config_id}{suffix}")
        for fiche_id in dict.fromkeys(fiche_ids)
    ]
    with database.transaction() as session:
        get_config(session, config_id)
        check_automation_links(session, options.linkage, INVALID_REQUEST)
        if batch_id:
            add_batch(session, batch_id, config_id, audits, now)
        file_requests(session, [_run_request(audit, options) for audit in audits], now)
    return FiledAudits(audits, batch_id)


def _run_request(audit: RequestedAudit, options: AuditRequestOptions) -> NewRunRequest:
    config: dict[str, object] = {
        "tracking_id": audit.tracking_id,
        "fiche_id": audit.fiche_id,
        "audit_config_id": options.audit_config_id,
        "use_rlm": options.use_rlm,
        "trigger_source": "batch" if options.batch else options.trigger_source,
    }
    optional = {"user_id": options.user_id, **options.linkage}
    config.update((name, value) for name, value in optional.items() if value is not None)
    tags = {
        "automation/fiche_id": audit.fiche_id,
        "automation/audit_config_id": str(options.audit_config_id),
        "automation/trace_id": audit.tracking_id,
        # A single audit, whose requester waits, has priority over audits of batches.
        "dagster/priority": "0" if options.batch else "10",
    }
    return NewRunRequest(audit.tracking_id, AUDIT_JOB, config, tags)


@dataclass(frozen=True)
class RequestedRerun:
    """A filed rerun. `rerun_id` is also the key of the run request."""

    rerun_id: str
    event_id: str


def request_rerun(
    location: StepLocation, *, instructions: str | None = None, database: Database, clock: Clock
) -> RequestedRerun:
    """Request a rerun. Raises NotFoundError for an unknown step or control point, and ConflictError
    unless the audit is completed."""
    prompt, event_id = validate_instructions(instructions), str(uuid.uuid4())
    key = rerun_id(location, event_id)
    with database.transaction() as session:
        found = get_changeable_audit(session, location.audit_id)
        get_step(session, location)
        config: dict[str, object] = {
            "audit_id": location.audit_id,
            "step_position": location.position,
            "rerun_id": key,
        }
        optional = {"control_point_index": location.point, "custom_prompt": prompt}
        config.update((name, value) for name, value in optional.items() if value is not None)
        tags = {
            "automation/fiche_id": found.summary.fiche_id,
            "automation/audit_id": str(location.audit_id),
            "automation/trace_id": key,
            "dagster/priority": "10",
        }
        file_requests(session, [NewRunRequest(key, RERUN_JOB, config, tags)], clock.now())
    return RequestedRerun(key, event_id)
