"""The table of permissions. A route without a row raises an error when it is created."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType

from automation_pipeline.core.access import Action, Permission


class Entity(StrEnum):
    """The entity that a path names. If it is out of the caller's reach, the guard answers 404."""

    FICHE = "fiche_id"
    AUDIT = "audit_id"
    SCHEDULE = "schedule_id"
    RUN = "run_id"
    JOB = "job_id"


class ScopeCheck(StrEnum):
    """How a route applies the caller's scope.

    BY_PATH: the guard checks the entity in the path. BY_QUERY: the list contains only what is in
    reach. BY_BODY: what the body or the query names must be in reach. BY_ORGANISATION: callers of an
    organisation reach only that one; other callers need the scope ALL. NOTHING: the data belongs to
    no fiche."""

    BY_PATH = "path"
    BY_QUERY = "query"
    BY_BODY = "body"
    BY_ORGANISATION = "organisation"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Rule:
    """Without a `permission`, a route needs valid credentials only; a `public` one needs none. Callers
    of an organisation need the permission `own` instead, if there is one."""

    permission: Permission | None
    action: Action = Action.READ
    scoped: ScopeCheck = ScopeCheck.NOTHING
    entity: Entity | None = None
    public: bool = False
    own: Permission | None = None


READ, WRITE = Action.READ, Action.WRITE
P = Permission


def _org(permission: Permission, action: Action, *, own: Permission | None = None) -> Rule:
    return Rule(permission, action, ScopeCheck.BY_ORGANISATION, own=own)


ORG_RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        # Organisations, their hosts, servers, schedules and jobs
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
        ("POST", "/api/org-jobs/types"): _org(P.ORG_JOBS, WRITE),
        ("PUT", "/api/org-jobs/types/{type_name}"): _org(P.ORG_JOBS, WRITE),
        ("DELETE", "/api/org-jobs/types/{type_name}"): _org(P.ORG_JOBS, WRITE),
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


PUBLIC = Rule(None, public=True)
AUTHENTICATED = Rule(None)


def _path(permission: Permission, action: Action, entity: Entity) -> Rule:
    return Rule(permission, action, ScopeCheck.BY_PATH, entity)


def _query(permission: Permission) -> Rule:
    return Rule(permission, READ, ScopeCheck.BY_QUERY)


def _body(permission: Permission, action: Action = WRITE) -> Rule:
    return Rule(permission, action, ScopeCheck.BY_BODY)


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("GET", "/health"): PUBLIC,
        ("GET", "/health/ready"): PUBLIC,
        ("GET", "/metrics"): PUBLIC,
        ("GET", "/api/auth/me"): AUTHENTICATED,
        # Automation
        ("POST", "/api/automation/schedules"): _body(P.AUTOMATION),
        ("GET", "/api/automation/schedules"): _query(P.AUTOMATION),
        ("GET", "/api/automation/schedules/{schedule_id}"): _path(
            P.AUTOMATION, READ, Entity.SCHEDULE
        ),
        ("PATCH", "/api/automation/schedules/{schedule_id}"): _path(
            P.AUTOMATION, WRITE, Entity.SCHEDULE
        ),
        ("DELETE", "/api/automation/schedules/{schedule_id}"): _path(
            P.AUTOMATION, WRITE, Entity.SCHEDULE
        ),
        ("POST", "/api/automation/schedules/{schedule_id}/pause"): _path(
            P.AUTOMATION, WRITE, Entity.SCHEDULE
        ),
        ("POST", "/api/automation/schedules/{schedule_id}/resume"): _path(
            P.AUTOMATION, WRITE, Entity.SCHEDULE
        ),
        ("POST", "/api/automation/schedules/{schedule_id}/skip-next"): _path(
            P.AUTOMATION, WRITE, Entity.SCHEDULE
        ),
        ("POST", "/api/automation/schedules/{schedule_id}/backfill"): _path(
            P.AUTOMATION, WRITE, Entity.SCHEDULE
        ),
        ("GET", "/api/automation/schedules/{schedule_id}/preview"): _path(
            P.AUTOMATION, READ, Entity.SCHEDULE
        ),
        ("GET", "/api/automation/schedules/{schedule_id}/next"): _path(
            P.AUTOMATION, READ, Entity.SCHEDULE
        ),
        ("GET", "/api/automation/schedules/{schedule_id}/occurrences"): _path(
            P.AUTOMATION, READ, Entity.SCHEDULE
        ),
        ("GET", "/api/automation/schedules/{schedule_id}/runs"): _path(
            P.AUTOMATION, READ, Entity.SCHEDULE
        ),
        ("POST", "/api/automation/trigger"): _body(P.AUTOMATION),
        ("GET", "/api/automation/diagnostic"): Rule(P.AUTOMATION),
        ("GET", "/api/automation/runs"): _query(P.AUTOMATION),
        ("GET", "/api/automation/runs/{run_id}"): _path(P.AUTOMATION, READ, Entity.RUN),
        ("GET", "/api/automation/runs/{run_id}/logs"): _path(P.AUTOMATION, READ, Entity.RUN),
        ("GET", "/api/automation/runs/{run_id}/fiches"): _path(P.AUTOMATION, READ, Entity.RUN),
        ("GET", "/api/automation/runs/{run_id}/events"): _path(P.AUTOMATION, READ, Entity.RUN),
        ("GET", "/api/automation/runs/{run_id}/report"): _path(P.AUTOMATION, READ, Entity.RUN),
        ("POST", "/api/automation/runs/{run_id}/cancel"): _path(P.AUTOMATION, WRITE, Entity.RUN),
        ("POST", "/api/automation/runs/{run_id}/retry"): _path(P.AUTOMATION, WRITE, Entity.RUN),
        # Fiches and recordings
        ("GET", "/api/fiches/search"): _query(P.FICHES),
        ("POST", "/api/fiches/status/batch"): _body(P.FICHES, READ),
        ("GET", "/api/fiches/status/by-date"): _query(P.FICHES),
        ("GET", "/api/fiches/status/by-date-range"): _query(P.FICHES),
        ("GET", "/api/fiches/webhooks/fiches"): _query(P.FICHES),
        ("GET", "/api/fiches/jobs"): _query(P.FICHES),
        ("GET", "/api/fiches/jobs/{job_id}"): _path(P.FICHES, READ, Entity.JOB),
        ("GET", "/api/fiches/{fiche_id}"): _path(P.FICHES, READ, Entity.FICHE),
        ("GET", "/api/fiches/{fiche_id}/cache"): _path(P.FICHES, READ, Entity.FICHE),
        ("GET", "/api/fiches/{fiche_id}/status"): _path(P.FICHES, READ, Entity.FICHE),
        ("GET", "/api/fiches/{fiche_id}/mirror"): _path(P.FICHES, READ, Entity.FICHE),
        ("GET", "/api/fiches/{fiche_id}/events"): _path(P.FICHES, READ, Entity.FICHE),
        ("GET", "/api/recordings/{fiche_id}"): _path(P.RECORDINGS, READ, Entity.FICHE),
        # Transcriptions
        ("POST", "/api/transcriptions/batch"): _body(P.TRANSCRIPTIONS),
        ("POST", "/api/transcriptions/{fiche_id}"): _path(P.TRANSCRIPTIONS, WRITE, Entity.FICHE),
        ("GET", "/api/transcriptions/{fiche_id}/status"): _path(
            P.TRANSCRIPTIONS, READ, Entity.FICHE
        ),
        ("GET", "/api/transcriptions/{fiche_id}/logs"): _path(P.TRANSCRIPTIONS, READ, Entity.FICHE),
        ("GET", "/api/transcriptions/{fiche_id}/recordings/{call_id}"): _path(
            P.TRANSCRIPTIONS, READ, Entity.FICHE
        ),
        # Audits
        ("GET", "/api/audits"): _query(P.AUDITS),
        ("POST", "/api/audits"): _body(P.AUDITS),
        ("POST", "/api/audits/run"): _body(P.AUDITS),
        ("POST", "/api/audits/run-latest"): _body(P.AUDITS),
        ("POST", "/api/audits/batch"): _body(P.AUDITS),
        ("GET", "/api/audits/grouped"): _query(P.AUDITS),
        ("GET", "/api/audits/grouped-by-fiches"): _query(P.AUDITS),
        ("GET", "/api/audits/control-points/statuses"): AUTHENTICATED,
        ("GET", "/api/audits/by-fiche/{fiche_id}"): _path(P.AUDITS, READ, Entity.FICHE),
        ("GET", "/api/audits/{audit_id}"): _path(P.AUDITS, READ, Entity.AUDIT),
        ("PATCH", "/api/audits/{audit_id}"): _path(P.AUDITS, WRITE, Entity.AUDIT),
        ("DELETE", "/api/audits/{audit_id}"): _path(P.AUDITS, WRITE, Entity.AUDIT),
        ("GET", "/api/audits/{audit_id}/logs"): _path(P.AUDITS, READ, Entity.AUDIT),
        ("PATCH", "/api/audits/{audit_id}/steps/{position}/review"): _path(
            P.AUDITS, WRITE, Entity.AUDIT
        ),
        ("POST", "/api/audits/{audit_id}/steps/{position}/rerun"): _path(
            P.AUDITS, WRITE, Entity.AUDIT
        ),
        ("GET", "/api/audits/{audit_id}/steps/{position}/control-points/{point}"): _path(
            P.AUDITS, READ, Entity.AUDIT
        ),
        ("PATCH", "/api/audits/{audit_id}/steps/{position}/control-points/{point}/review"): _path(
            P.AUDITS, WRITE, Entity.AUDIT
        ),
        ("POST", "/api/audits/{audit_id}/steps/{position}/control-points/{point}/rerun"): _path(
            P.AUDITS, WRITE, Entity.AUDIT
        ),
        # Audit configurations belong to no fiche.
        ("GET", "/api/audit-configs"): Rule(P.AUDIT_CONFIGS),
        ("POST", "/api/audit-configs"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("POST", "/api/audit-configs/import"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("GET", "/api/audit-configs/{config_id}"): Rule(P.AUDIT_CONFIGS),
        ("PUT", "/api/audit-configs/{config_id}"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("DELETE", "/api/audit-configs/{config_id}"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("POST", "/api/audit-configs/{config_id}/steps"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("PUT", "/api/audit-configs/{config_id}/steps/reorder"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("PUT", "/api/audit-configs/steps/{step_id}"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("DELETE", "/api/audit-configs/steps/{step_id}"): Rule(P.AUDIT_CONFIGS, WRITE),
        ("GET", "/api/audit-configs/{config_id}/validate"): Rule(P.AUDIT_CONFIGS),
        ("GET", "/api/audit-configs/{config_id}/stats"): Rule(P.AUDIT_CONFIGS),
        # Realtime. Access to a channel depends on its subject.
        ("POST", "/api/realtime/pusher/auth"): _body(P.REALTIME, READ),
        ("POST", "/api/realtime/pusher/test"): Rule(P.ADMIN_PERMISSIONS, WRITE),
        # The status of requests
        ("GET", "/api/requests/transcriptions"): _query(P.TRANSCRIPTIONS),
        ("GET", "/api/requests/audits"): _query(P.AUDITS),
        ("GET", "/api/requests/reruns"): _query(P.AUDITS),
        # Prices belong to no fiche. The POSTs `preview` and `reconcile` change no price.
        ("GET", "/api/pricing/rules"): Rule(P.PRICING),
        ("POST", "/api/pricing/rules"): Rule(P.PRICING, WRITE),
        ("GET", "/api/pricing/rules/{rule_id}"): Rule(P.PRICING),
        ("PATCH", "/api/pricing/rules/{rule_id}"): Rule(P.PRICING, WRITE),
        ("DELETE", "/api/pricing/rules/{rule_id}"): Rule(P.PRICING_RUNS, WRITE),
        ("GET", "/api/pricing/rules/{rule_id}/versions"): Rule(P.PRICING),
        ("POST", "/api/pricing/rules/{rule_id}/preview"): Rule(P.PRICING),
        ("POST", "/api/pricing/rules/{rule_id}/apply"): Rule(P.PRICING_RUNS, WRITE),
        ("GET", "/api/pricing/runs"): Rule(P.PRICING),
        ("GET", "/api/pricing/runs/{rule_run_id}"): Rule(P.PRICING),
        ("GET", "/api/pricing/runs/{rule_run_id}/targets"): Rule(P.PRICING),
        ("GET", "/api/pricing/runs/{rule_run_id}/skipped"): Rule(P.PRICING),
        ("GET", "/api/pricing/runs/{rule_run_id}/result"): Rule(P.PRICING),
        ("GET", "/api/pricing/runs/{rule_run_id}/log"): Rule(P.PRICING),
        ("GET", "/api/pricing/runs/{rule_run_id}/checks"): Rule(P.PRICING),
        ("POST", "/api/pricing/runs/{rule_run_id}/reconcile"): Rule(P.PRICING),
        ("POST", "/api/pricing/runs/{rule_run_id}/approve"): Rule(P.PRICING, WRITE),
        ("POST", "/api/pricing/runs/{rule_run_id}/apply"): Rule(P.PRICING_RUNS, WRITE),
        ("POST", "/api/pricing/runs/{rule_run_id}/retry"): Rule(P.PRICING_RUNS, WRITE),
        ("POST", "/api/pricing/runs/{rule_run_id}/rollback"): Rule(P.PRICING_RUNS, WRITE),
        ("POST", "/api/pricing/runs/{rule_run_id}/cancel"): Rule(P.PRICING_RUNS, WRITE),
        ("POST", "/api/pricing/runs/{rule_run_id}/repair"): Rule(P.PRICING_RUNS, WRITE),
        ("GET", "/api/pricing/dead-letters"): Rule(P.PRICING),
        ("POST", "/api/pricing/dead-letters/retry"): Rule(P.PRICING_RUNS, WRITE),
        ("POST", "/api/pricing/dead-letters/acknowledge"): Rule(P.PRICING_RUNS, WRITE),
        ("GET", "/api/pricing/policies/{project}"): Rule(P.PRICING),
        ("PUT", "/api/pricing/policies/{project}"): Rule(P.PRICING_POLICIES, WRITE),
        ("DELETE", "/api/pricing/policies/{project}"): Rule(P.PRICING_POLICIES, WRITE),
        ("GET", "/api/pricing/shop"): Rule(P.PRICING),
        ("POST", "/api/pricing/shop/pause"): Rule(P.PRICING_RUNS, WRITE),
        ("POST", "/api/pricing/shop/resume"): Rule(P.PRICING_RUNS, WRITE),
        ("GET", "/api/pricing/alerts"): Rule(P.PRICING),
        ("GET", "/api/pricing/price-changes"): Rule(P.PRICING),
        # Companies. A tenant sees only its own requests.
        ("POST", "/v1/requests"): Rule(P.ENRICHMENT, WRITE),
        ("GET", "/v1/requests"): Rule(P.ENRICHMENT),
        ("GET", "/v1/requests/{request_id}"): Rule(P.ENRICHMENT),
        ("GET", "/v1/requests/{request_id}/jobs"): Rule(P.ENRICHMENT),
        ("POST", "/v1/requests/{request_id}:refresh-company"): Rule(P.ENRICHMENT, WRITE),
        ("GET", "/v1/companies/{siren}"): Rule(P.ENRICHMENT),
        ("GET", "/v1/sources"): Rule(P.ENRICHMENT),
        # Organisations, their schedules and their jobs
        **ORG_RULES,
        # Machine tokens
        ("GET", "/api/admin/tokens"): Rule(P.ADMIN_PERMISSIONS),
        ("POST", "/api/admin/tokens"): Rule(P.ADMIN_PERMISSIONS, WRITE),
        ("DELETE", "/api/admin/tokens/{token_id}"): Rule(P.ADMIN_PERMISSIONS, WRITE),
    }
)


class UnruledRouteError(Exception):
    """A route without a row in the table."""


def rule_of(method: str, path: str) -> Rule:
    try:
        return RULES[method, path]
    except KeyError:
        raise UnruledRouteError(f"{method} {path} has no rule in api/permissions.py") from None


def allowed_methods(path: str) -> tuple[str, ...]:
    """Return the methods of a path. A fixed path takes precedence over one with a parameter. An
    unknown path has none."""
    fixed, patterns = _paths()
    if path in fixed:
        return fixed[path]
    return next((methods for pattern, methods in patterns if pattern.fullmatch(path)), ())


def is_shadowed(path: str, method: str) -> bool:
    """Whether only other methods have this fixed path, or this action such as
    `/v1/requests/{request_id}:refresh-company`. A route with a parameter must not answer it."""
    fixed, patterns = _paths()
    if path in fixed:
        return method not in fixed[path]
    actions = (
        methods
        for pattern, methods in patterns
        if ":" in pattern.pattern and pattern.fullmatch(path)
    )
    return method not in next(actions, (method,))


@cache
def _paths() -> tuple[
    Mapping[str, tuple[str, ...]], tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]
]:
    methods: dict[str, list[str]] = defaultdict(list)
    for method, path in RULES:
        methods[path].append(method)
    known = {path: tuple(sorted(names)) for path, names in methods.items()}
    fixed = {path: names for path, names in known.items() if "{" not in path}
    # Actions first: the pattern of the path without the action would match them too.
    variable = sorted((path for path in known if "{" in path), key=lambda path: ":" not in path)
    patterns = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), known[path]) for path in variable]
    return fixed, tuple(patterns)
