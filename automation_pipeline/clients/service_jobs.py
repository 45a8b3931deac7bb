"""The job types that this system runs itself: `org_jobs.ports.JobRunner`."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from os import environ
from typing import cast

from automation_pipeline.automation.models.runs import Run, RunStatus
from automation_pipeline.automation.queries.run_details import runs_by_id
from automation_pipeline.automation.run_endings import LONGEST_REASON, cancel_run
from automation_pipeline.automation.runs import request_run
from automation_pipeline.core.addresses import origin_of
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.logs import usable_id
from automation_pipeline.core.retry import TRANSIENT_STATUSES
from automation_pipeline.enrichment.models import EnrichmentStatus, Requester, check_configured
from automation_pipeline.enrichment.ports import Registries
from automation_pipeline.enrichment.queries.requests import RequestStatus, request_statuses
from automation_pipeline.enrichment.requests import request_enrichment
from automation_pipeline.org_jobs.models.job_types import (
    AUTOMATION_RUN,
    COMPANY_ENRICHMENT,
    HTTPS_CALL,
    PRICING_RULE_APPLY,
)
from automation_pipeline.org_jobs.models.jobs import (
    CONFLICT,
    FAILED,
    NOT_FOUND,
    VALIDATION,
    AttemptEnd,
    attempt_cancelled,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.payloads import (
    AutomationRunPayload,
    CompanyEnrichmentPayload,
    HttpsCallPayload,
    PricingRulePayload,
    secrets_of,
    variable_of,
    with_secrets,
)
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.ports import (
    HttpsAnswer,
    HttpsCaller,
    HttpsRequest,
    JobContext,
    JobRunner,
)
from automation_pipeline.pricing import runs as rule_runs
from automation_pipeline.pricing.models.runs import (
    ENDED_RUN_STATES,
    PricingRunState,
    RuleRun,
    RuleTrigger,
)
from automation_pipeline.pricing.queries import runs as rule_run_queries
from automation_pipeline.pricing.rules.runs import PREVIEW_LIFETIME
from automation_pipeline.storage.database import Database

AUTOMATION_RUN_ID = "automationRunId"


class AutomationRunJob:
    """Runs a schedule. A completed or partial run is a success, and a run that an operator cancelled is
    cancelled. If the schedule has an active run, the attempt is a conflict and is repeated."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def start(self, context: JobContext) -> Mapping[str, object]:
        schedule_id = parse(
            AutomationRunPayload, context.payload, "The stored payload is refused"
        ).schedule_id
        run = request_run(schedule_id, database=self._database, clock=self._clock)
        return {AUTOMATION_RUN_ID: str(run.id)}

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        run_ids = {number: _automation_run_id(following) for number, following in followed.items()}
        with self._database.reading() as session:
            runs = runs_by_id(session, set(run_ids.values()))
        ends = {
            number: _end_of_automation_run(run_id, runs.get(run_id))
            for number, run_id in run_ids.items()
        }
        return {number: end for number, end in ends.items() if end is not None}

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        full_reason = f"{reason} ({actor})" if reason else f"by {actor}"
        with suppress(ConflictError, NotFoundError):  # it has ended, or is gone
            cancel_run(
                _automation_run_id(following),
                database=self._database,
                clock=self._clock,
                reason=full_reason[:LONGEST_REASON],
            )
        return False


def _automation_run_id(following: Mapping[str, object]) -> int:
    return int(str(following[AUTOMATION_RUN_ID]))


def _end_of_automation_run(run_id: int, run: Run | None) -> AttemptEnd | None:
    if run is None:
        error = f"Automation run {run_id} is gone."
        return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=NOT_FOUND, error=error)
    if run.completed_at is None:
        return None
    error = (
        run.error_message or f"All {run.failed_fiches} fiches of automation run {run_id} failed."
    )
    if run.status is RunStatus.CANCELLED:
        return attempt_cancelled(error)
    if run.status is not RunStatus.FAILED:
        return attempt_succeeded(_counters(run))
    return AttemptEnd(
        status=OrgJobsRunState.FAILED, error_code=FAILED, error=error, result=_counters(run)
    )


def _counters(run: Run) -> dict[str, object]:
    return {
        AUTOMATION_RUN_ID: str(run.id),
        "status": run.status,
        "selected": run.selected_fiches,
        "successful": run.successful_fiches,
        "failed": run.failed_fiches,
        "ignored": run.ignored_fiches,
    }


RULE_RUN_ID = "ruleRunId"


class PricingRuleJob:
    """Applies a pricing rule. APPLIED and PARTIAL runs are a success, whose result counts the failed
    targets. A preview that waits for its approval is waited for until it expires and is then a
    conflict, as is a rule that cools down or has an active run."""

    def __init__(self, database: Database, clock: Clock, shop: Callable[[], str]) -> None:
        self._database, self._clock, self._shop = database, clock, shop

    def start(self, context: JobContext) -> Mapping[str, object]:
        payload = parse(PricingRulePayload, context.payload, "The stored payload is refused")
        # With this trigger, a run without changes is applied instead of refused.
        run_id = rule_runs.request_rule_run(
            payload.rule_id,
            database=self._database,
            clock=self._clock,
            shop=self._shop(),
            actor=f"org-job:{context.job_id}",
            trigger=RuleTrigger.SCHEDULE,
            force=payload.force,
        )
        return {RULE_RUN_ID: str(run_id)}

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        run_ids = {number: _rule_run_id(following) for number, following in followed.items()}
        with self._database.reading() as session:
            runs = rule_run_queries.runs_by_id(session, set(run_ids.values()))
        now = self._clock.now()
        ends = {
            number: _end_of_rule_run(run_id, runs.get(run_id), now)
            for number, run_id in run_ids.items()
        }
        return {number: end for number, end in ends.items() if end is not None}

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        """A preview that waits for its approval need not be cancelled: it is only applied at an
        explicit request, and it expires."""
        _ = reason
        try:
            rule_runs.cancel_run(
                _rule_run_id(following), database=self._database, clock=self._clock, actor=actor
            )
        except ConflictError:
            return self._is_idle_preview(_rule_run_id(following))
        except NotFoundError:
            return False
        return False

    def _is_idle_preview(self, run_id: int) -> bool:
        with self._database.reading() as session:
            run = rule_run_queries.runs_by_id(session, {run_id}).get(run_id)
        return run is not None and run.status is PricingRunState.PREVIEW and run.wish is None


def _rule_run_id(following: Mapping[str, object]) -> int:
    return int(str(following[RULE_RUN_ID]))


def _end_of_rule_run(run_id: int, run: RuleRun | None, now: datetime) -> AttemptEnd | None:
    if run is None:
        return _failed_rule_run(NOT_FOUND, f"Rule run {run_id} is gone.")
    if run.status is PricingRunState.PREVIEW:
        return _end_of_preview(run, now)
    if run.status not in ENDED_RUN_STATES:
        return None
    if run.cancel_requested_at is not None and run.status is not PricingRunState.APPLIED:
        return AttemptEnd(
            status=OrgJobsRunState.CANCELLED,
            error=f"Rule run {run_id} was cancelled.",
            result=_result(run),
        )
    if run.status is PricingRunState.FAILED:
        return _failed_rule_run(
            FAILED, run.error_message or f"Rule run {run_id} failed.", _result(run)
        )
    return attempt_succeeded(_result(run))


def _end_of_preview(run: RuleRun, now: datetime) -> AttemptEnd | None:
    if run.cancel_requested_at is not None:
        return attempt_cancelled(f"Rule run {run.id} was cancelled.")
    if (
        run.wish is not None
        or run.previewed_at is None
        or now - run.previewed_at <= PREVIEW_LIFETIME
    ):
        return None
    reason = run.error_message or "nobody queued it."
    return _failed_rule_run(CONFLICT, f"Rule run {run.id} stayed a preview: {reason}", _result(run))


def _failed_rule_run(
    code: str, error: str, result: Mapping[str, object] | None = None
) -> AttemptEnd:
    return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=code, error=error, result=result)


def _result(run: RuleRun) -> dict[str, object]:
    counts = {
        "targets": run.total_targets,
        "applied": run.targets.applied,
        "failed": run.targets.failed,
        "skipped": run.skipped,
        "blocked": run.blocked,
    }
    known: dict[str, object] = {RULE_RUN_ID: str(run.id), "status": run.status, **counts}
    if run.status is not PricingRunState.PARTIAL:
        return known
    note = f"{run.targets.failed} of {run.total_targets} prices could not be set: see the dead letters of the run."
    return {**known, "note": note}


REQUEST_ID = "companyRequestId"
SIREN_DIGITS = 9
_SUCCESSFUL = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})


class CompanyEnrichmentJob:
    """Enriches a company. SUCCESS and PARTIAL are a success. An enrichment cannot be cancelled, because
    other requests may wait for it."""

    def __init__(
        self, database: Database, clock: Clock, registries: Callable[[], Registries]
    ) -> None:
        self._database, self._clock, self._registries = database, clock, registries

    def start(self, context: JobContext) -> Mapping[str, object]:
        payload = parse(CompanyEnrichmentPayload, context.payload, "The stored payload is refused")
        registries = self._registries()
        check_configured(registries.sources)
        key = f"{context.key}-{context.attempt_no}"
        requester = Requester(
            tenant_id=context.org_id,
            correlation_id=usable_id(key),
            actor=f"org-job:{context.job_id}",
            idempotency_key=key,
        )
        identifiers = {
            "siren" if len(payload.company) == SIREN_DIGITS else "siret": payload.company
        }
        filed = request_enrichment(
            identifiers,
            requester,
            options=registries.options,
            database=self._database,
            clock=self._clock,
            force=payload.force,
        )
        return {REQUEST_ID: str(filed.request_id)}

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        request_ids = {
            number: int(str(following[REQUEST_ID])) for number, following in followed.items()
        }
        with self._database.reading() as session:
            statuses = {
                status.request_id: status
                for status in request_statuses(session, sorted(set(request_ids.values())))
            }
        ends = {
            number: _end_of_enrichment(request_id, statuses.get(request_id))
            for number, request_id in request_ids.items()
        }
        return {number: end for number, end in ends.items() if end is not None}

    def cancel(
        self,
        following: Mapping[str, object],  # noqa: ARG002  the same
        actor: str,  # noqa: ARG002  the port asks for it
        reason: str | None = None,  # noqa: ARG002  the same
    ) -> bool:
        """There is nothing to stop."""
        return True


def _end_of_enrichment(request_id: int, request: RequestStatus | None) -> AttemptEnd | None:
    if request is None:
        error = f"Request {request_id} for a company is gone."
        return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=NOT_FOUND, error=error)
    if request.is_running:
        return None
    result = {REQUEST_ID: str(request_id), "siren": request.siren, "status": request.status}
    if request.status in _SUCCESSFUL:
        return attempt_succeeded(result)
    error = f"Company {request.siren} is {request.status}: {request.error or 'nobody was asked'}"
    return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=FAILED, error=error, result=result)


KEY_HEADER = "Idempotency-Key"


class HttpsCallJob:
    """Calls an HTTPS address. All attempts of a run carry its key as Idempotency-Key, so that a
    receiver recognises a repetition. A refusal or a redirect is final; a server error is retried."""

    def __init__(
        self, open_caller: Callable[[], HttpsCaller], environment: Mapping[str, str]
    ) -> None:
        self._open_caller, self._environment = open_caller, environment

    async def work(self, context: JobContext) -> AttemptEnd:
        payload = parse(HttpsCallPayload, context.payload, "The stored payload is refused")
        request = _request(payload, context, self._environment)
        return _end_of_call(
            payload, origin_of(request.url), await self._open_caller().call(request)
        )


def _request(
    payload: HttpsCallPayload, context: JobContext, environment: Mapping[str, str]
) -> HttpsRequest:
    secrets = secrets_of(context.payload, context.org_id, environment)
    _refuse_unsendable(secrets, context.org_id)
    filled = cast("dict[str, object]", with_secrets(context.payload, secrets))
    headers = {KEY_HEADER: context.key, **cast("dict[str, str]", filled.get("headers", {}))}
    body = None
    if payload.body is not None:
        body = json.dumps(filled["body"], ensure_ascii=False, separators=(",", ":")).encode()
        if "content-type" not in map(str.lower, headers):
            headers["Content-Type"] = "application/json"
    return HttpsRequest(
        method=payload.method,
        url=str(filled["url"]),
        headers=headers,
        body=body,
        timeout_seconds=payload.timeout_seconds,
        secrets=tuple(secrets.values()),
    )


def _refuse_unsendable(secrets: Mapping[str, str], org_id: str) -> None:
    for name, secret in secrets.items():
        if not (secret.isascii() and secret.isprintable()):
            raise InvalidInputError(
                f"{variable_of(org_id, name)} holds characters that cannot be sent."
            )


def _end_of_call(payload: HttpsCallPayload, origin: str, answer: HttpsAnswer) -> AttemptEnd:
    result = {"status": answer.status, "text": answer.text}
    if payload.is_good(answer.status):
        return attempt_succeeded(result)
    is_final = 300 <= answer.status < 500 and answer.status not in TRANSIENT_STATUSES
    return AttemptEnd(
        status=OrgJobsRunState.FAILED,
        error_code=VALIDATION if is_final else FAILED,
        error=f"{origin} answered {answer.status}.",
        result=result,
    )


def service_job_runners(
    database: Database,
    clock: Clock,
    *,
    shop: Callable[[], str],
    registries: Callable[[], Registries],
    open_caller: Callable[[], HttpsCaller],
) -> Mapping[str, JobRunner]:
    """The runner of each service type. Functions are called when a job needs their value. Secrets come
    from the environment of this process."""
    return {
        AUTOMATION_RUN: AutomationRunJob(database, clock),
        PRICING_RULE_APPLY: PricingRuleJob(database, clock, shop),
        COMPANY_ENRICHMENT: CompanyEnrichmentJob(database, clock, registries),
        HTTPS_CALL: HttpsCallJob(open_caller, environ),
    }
