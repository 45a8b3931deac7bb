"""Who may call what, as one table: no route works without a row here. `scoped` says how the caller's scope is kept."""

from collections.abc import Mapping
from types import MappingProxyType

from automation_pipeline.api.org_rules import ORG_RULES
from automation_pipeline.api.rule import Entity, Rule, Scoped
from automation_pipeline.core.access import Action, Permission

READ, WRITE = Action.READ, Action.WRITE
P = Permission

PUBLIC = Rule(None, public=True)
ANYBODY = Rule(None)


def _path(permission: Permission, action: Action, entity: Entity) -> Rule:
    return Rule(permission, action, Scoped.BY_PATH, entity)


def _query(permission: Permission) -> Rule:
    return Rule(permission, READ, Scoped.BY_QUERY)


def _body(permission: Permission, action: Action = WRITE) -> Rule:
    return Rule(permission, action, Scoped.BY_BODY)


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("GET", "/health"): PUBLIC,
        ("GET", "/health/ready"): PUBLIC,
        ("GET", "/metrics"): PUBLIC,
        ("GET", "/api/auth/me"): ANYBODY,
        # Automation
        ("POST", "/api/automation/schedules"): _body(P.AUTOMATION),
        ("GET", "/api/automation/schedules"): _query(P.AUTOMATION),
        ("GET", "/api/automation/schedules/{schedule_id}"): _path(P.AUTOMATION, READ, Entity.SCHEDULE),
        ("PATCH", "/api/automation/schedules/{schedule_id}"): _path(P.AUTOMATION, WRITE, Entity.SCHEDULE),
        ("DELETE", "/api/automation/schedules/{schedule_id}"): _path(P.AUTOMATION, WRITE, Entity.SCHEDULE),
        ("POST", "/api/automation/schedules/{schedule_id}/pause"): _path(P.AUTOMATION, WRITE, Entity.SCHEDULE),
        ("POST", "/api/automation/schedules/{schedule_id}/resume"): _path(P.AUTOMATION, WRITE, Entity.SCHEDULE),
        ("POST", "/api/automation/schedules/{schedule_id}/skip-next"): _path(P.AUTOMATION, WRITE, Entity.SCHEDULE),
        ("POST", "/api/automation/schedules/{schedule_id}/backfill"): _path(P.AUTOMATION, WRITE, Entity.SCHEDULE),
        ("GET", "/api/automation/schedules/{schedule_id}/preview"): _path(P.AUTOMATION, READ, Entity.SCHEDULE),
        ("GET", "/api/automation/schedules/{schedule_id}/next"): _path(P.AUTOMATION, READ, Entity.SCHEDULE),
        ("GET", "/api/automation/schedules/{schedule_id}/occurrences"): _path(P.AUTOMATION, READ, Entity.SCHEDULE),
        ("GET", "/api/automation/schedules/{schedule_id}/runs"): _path(P.AUTOMATION, READ, Entity.SCHEDULE),
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
        ("GET", "/api/transcriptions/{fiche_id}/status"): _path(P.TRANSCRIPTIONS, READ, Entity.FICHE),
        ("GET", "/api/transcriptions/{fiche_id}/logs"): _path(P.TRANSCRIPTIONS, READ, Entity.FICHE),
        ("GET", "/api/transcriptions/{fiche_id}/recordings/{call_id}"): _path(P.TRANSCRIPTIONS, READ, Entity.FICHE),
        # Audits
        ("GET", "/api/audits"): _query(P.AUDITS),
        ("POST", "/api/audits"): _body(P.AUDITS),
        ("POST", "/api/audits/run"): _body(P.AUDITS),
        ("POST", "/api/audits/run-latest"): _body(P.AUDITS),
        ("POST", "/api/audits/batch"): _body(P.AUDITS),
        ("GET", "/api/audits/grouped"): _query(P.AUDITS),
        ("GET", "/api/audits/grouped-by-fiches"): _query(P.AUDITS),
        ("GET", "/api/audits/control-points/statuses"): ANYBODY,
        ("GET", "/api/audits/by-fiche/{fiche_id}"): _path(P.AUDITS, READ, Entity.FICHE),
        ("GET", "/api/audits/{audit_id}"): _path(P.AUDITS, READ, Entity.AUDIT),
        ("PATCH", "/api/audits/{audit_id}"): _path(P.AUDITS, WRITE, Entity.AUDIT),
        ("DELETE", "/api/audits/{audit_id}"): _path(P.AUDITS, WRITE, Entity.AUDIT),
        ("GET", "/api/audits/{audit_id}/logs"): _path(P.AUDITS, READ, Entity.AUDIT),
        ("PATCH", "/api/audits/{audit_id}/steps/{position}/review"): _path(P.AUDITS, WRITE, Entity.AUDIT),
        ("POST", "/api/audits/{audit_id}/steps/{position}/rerun"): _path(P.AUDITS, WRITE, Entity.AUDIT),
        ("GET", "/api/audits/{audit_id}/steps/{position}/control-points/{point}"): _path(P.AUDITS, READ, Entity.AUDIT),
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
        # Realtime: the channel named in the body is checked by what it is about.
        ("POST", "/api/realtime/pusher/auth"): _body(P.REALTIME, READ),
        ("POST", "/api/realtime/pusher/test"): Rule(P.ADMIN_PERMISSIONS, WRITE),
        # What became of what was asked for
        ("GET", "/api/requests/transcriptions"): _query(P.TRANSCRIPTIONS),
        ("GET", "/api/requests/audits"): _query(P.AUDITS),
        ("GET", "/api/requests/reruns"): _query(P.AUDITS),
        # Prices belong to no fiche. A preview and a look at the shop are POSTs that change no price.
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
        # Companies, by a contract of their own: requests are kept apart by tenant.
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
    """A route that the table does not know."""


def rule_of(method: str, path: str) -> Rule:
    try:
        return RULES[method, path]
    except KeyError:
        raise UnruledRouteError(f"{method} {path} has no rule in api/rules.py") from None
