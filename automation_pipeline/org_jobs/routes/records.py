"""Routes of alerts and the audit log."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import AfterId, Limit, Newest, Offset, OneOrg, TheServices
from automation_pipeline.api.responses import Following, Listing, following, listed
from automation_pipeline.api.scopes import TheWithin, narrowed
from automation_pipeline.org_jobs.models.organisations import AuditEntry
from automation_pipeline.org_jobs.queries.health import list_alerts
from automation_pipeline.org_jobs.queries.organisations import audit_log
from automation_pipeline.org_jobs.rules.health import OrgAlert

router = APIRouter(route_class=GuardedRoute, tags=["organisations' history"])


@dataclass(frozen=True)
class EntryChoice:
    """Which entries are wanted."""

    org: OneOrg = None
    entity: Annotated[
        str | None, Query(max_length=50, description="Only about such, as `schedule`.")
    ] = None
    entity_id: Annotated[str | None, Query(max_length=100, description="Only about this one.")] = (
        None
    )


@router.get("/api/org-alerts", response_model=Listing[OrgAlert])
def alerts(
    within: TheWithin,
    services: TheServices,
    *,
    org: OneOrg = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the alerts, newest first: why somebody was called, and what became of the message.

    Those about the scheduler itself are for callers of no organisation.
    """
    with services.database.reading() as session:
        found = list_alerts(session, within, org_id=org, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.get("/api/org-audit-log", response_model=Following[AuditEntry])
def log(
    within: TheWithin,
    services: TheServices,
    chosen: Annotated[EntryChoice, Depends()],
    after: AfterId = 0,
    limit: Limit = 100,
    newest: Newest = False,
) -> Response:
    """Everything that somebody changed, of schedules, jobs, hosts and servers: who, when and why.
    Oldest first."""
    reached = narrowed(within, chosen.org)
    if reached is None:
        return following([], limit)
    with services.database.reading() as session:
        found = audit_log(
            session,
            reached,
            entity=chosen.entity,
            entity_id=chosen.entity_id,
            limit=limit,
            after_id=after,
            newest_first=newest,
        )
    return following(found, limit)
