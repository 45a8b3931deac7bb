"""Who may call what of organisations' jobs. All other rules are in the table beside it."""

from collections.abc import Mapping
from types import MappingProxyType

from automation_pipeline.api.rule import Rule, Scoped
from automation_pipeline.core.access import Action, Permission

READ, WRITE = Action.READ, Action.WRITE
P = Permission


def _org(permission: Permission, action: Action, *, own: Permission | None = None) -> Rule:
    return Rule(permission, action, Scoped.BY_ORGANISATION, own=own)


ORG_RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        # Organisations, and what they have
        ("GET", "/api/organisations"): _org(P.ORGANISATIONS, READ, own=P.ORG_JOBS),
        ("POST", "/api/organisations"): _org(P.ORGANISATIONS, WRITE),
        ("GET", "/api/organisations/{org_id}"): _org(P.ORGANISATIONS, READ, own=P.ORG_JOBS),
        ("PATCH", "/api/organisations/{org_id}"): _org(P.ORGANISATIONS, WRITE),
        ("POST", "/api/organisations/{org_id}/suspend"): _org(P.ORGANISATIONS, WRITE),
        ("POST", "/api/organisations/{org_id}/resume"): _org(P.ORGANISATIONS, WRITE),
        ("GET", "/api/org-hosts"): _org(P.ORG_JOBS, READ),
        ("POST", "/api/org-hosts"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-hosts/{host_id}"): _org(P.ORG_JOBS, READ),
        ("PATCH", "/api/org-hosts/{host_id}"): _org(P.ORG_JOBS, WRITE),
        ("DELETE", "/api/org-hosts/{host_id}"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-servers"): _org(P.ORG_JOBS, READ),
        ("POST", "/api/org-servers"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-servers/{server_id}"): _org(P.ORG_JOBS, READ),
        ("PATCH", "/api/org-servers/{server_id}"): _org(P.ORG_JOBS, WRITE),
        ("DELETE", "/api/org-servers/{server_id}"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-schedules"): _org(P.ORG_JOBS, READ),
        ("POST", "/api/org-schedules"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-schedules/preview"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-schedules/{org_schedule_id}"): _org(P.ORG_JOBS, READ),
        ("PATCH", "/api/org-schedules/{org_schedule_id}"): _org(P.ORG_JOBS, WRITE),
        ("DELETE", "/api/org-schedules/{org_schedule_id}"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-schedules/{org_schedule_id}/pause"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-schedules/{org_schedule_id}/resume"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-schedules/{org_schedule_id}/skip-next"): _org(P.ORG_JOBS, WRITE),
        ("DELETE", "/api/org-schedules/{org_schedule_id}/skip-next"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-schedules/{org_schedule_id}/run-now"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-schedules/{org_schedule_id}/backfill"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-schedules/{org_schedule_id}/next"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-schedules/{org_schedule_id}/fires"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-schedules/{org_schedule_id}/log"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-jobs"): _org(P.ORG_JOBS, READ),
        ("POST", "/api/org-jobs"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-jobs/types"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-jobs/queues"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-jobs/{org_job_id}"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-jobs/{org_job_id}/log"): _org(P.ORG_JOBS, READ),
        ("POST", "/api/org-jobs/{org_job_id}/cancel"): _org(P.ORG_JOBS, WRITE),
        ("POST", "/api/org-jobs/{org_job_id}/retry"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-backfills"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-backfills/{batch_id}"): _org(P.ORG_JOBS, READ),
        ("POST", "/api/org-backfills/{batch_id}/cancel"): _org(P.ORG_JOBS, WRITE),
        ("GET", "/api/org-alerts"): _org(P.ORG_JOBS, READ),
        ("GET", "/api/org-audit-log"): _org(P.ORG_JOBS, READ),
        # Agents, which work for the hosts of one organisation
        ("POST", "/api/agents/hosts/{host_id}/heartbeat"): _org(P.ORG_JOBS_AGENTS, WRITE),
        ("POST", "/api/agents/hosts/{host_id}/claim"): _org(P.ORG_JOBS_AGENTS, WRITE),
        ("GET", "/api/agents/hosts/{host_id}/runs"): _org(P.ORG_JOBS_AGENTS, WRITE),
        ("POST", "/api/agents/runs/{job_run_id}/progress"): _org(P.ORG_JOBS_AGENTS, WRITE),
        ("POST", "/api/agents/runs/{job_run_id}/result"): _org(P.ORG_JOBS_AGENTS, WRITE),
    }
)
