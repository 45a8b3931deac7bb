"""The runners of the job types that this system runs itself. They implement
`org_jobs.ports.JobRunner`.

The other packages are imported where they are used, so a worker imports only what its job needs."""
# ruff: noqa: PLC0415

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from os import environ
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from automation_pipeline.core.addresses import origin_of
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.logs import usable_id
from automation_pipeline.core.retry import TRANSIENT_STATUSES
from automation_pipeline.org_jobs.models.jobs import (
    CONFLICT,
    FAILED,
    NOT_FOUND,
    VALIDATION,
    AttemptEnd,
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.payloads import (
    AUTOMATION_RUN,
    COMPANY_ENRICHMENT,
    HTTPS_CALL,
    PRICING_RULE_APPLY,
    AutomationRunPayload,
    CompanyEnrichmentPayload,
    HttpsCallPayload,
    PricingRulePayload,
    secrets_of,
    variable_of,
    with_secrets,
)
from automation_pipeline.org_jobs.ports import (
    HttpsCaller,
    HttpsRequest,
    JobContext,
    JobRunner,
)
from automation_pipeline.storage.database import Database, Session

if TYPE_CHECKING:
    from automation_pipeline.automation.models.runs import Run
    from automation_pipeline.enrichment.models import Registries, RequestShown
    from automation_pipeline.pricing.models.runs import RuleRun

REFUSED = "The stored payload is refused"
SIREN_DIGITS = 9

Work = TypeVar("Work")


class FollowedWork(ABC, Generic[Work]):
    """The base of remote runners: the work of a job is a row of another package, found by its id."""

    key: ClassVar[str]

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def find_ended(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        ids = {number: self._id_in(following) for number, following in followed.items()}
        with self._database.reading() as session:
            found = self._find(session, set(ids.values()))
        ends = {number: self._end(id_, found.get(id_)) for number, id_ in ids.items()}
        return {number: end for number, end in ends.items() if end is not None}

    def _id_in(self, following: Mapping[str, object]) -> int:
        return int(str(following[self.key]))

    @abstractmethod
    def _find(self, session: Session, ids: Collection[int]) -> Mapping[int, Work]: ...

    @abstractmethod
    def _end(self, id_: int, work: Work | None) -> AttemptEnd | None:
        """None while the work continues."""


class AutomationRunJob(FollowedWork["Run"]):
    """Runs a schedule. A completed or partial run is a success, and a run that an operator cancelled is
    cancelled. If the schedule has an active run, the attempt is a conflict and is repeated."""

    key = "automationRunId"

    def start(self, context: JobContext) -> Mapping[str, object]:
        from automation_pipeline.automation.runs import request_run

        schedule_id = parse(AutomationRunPayload, context.payload, REFUSED).schedule_id
        run = request_run(schedule_id, database=self._database, clock=self._clock)
        return {self.key: str(run.id)}

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        from automation_pipeline.automation.runs import LONGEST_REASON, cancel_run

        run_id, by = self._id_in(following), f"{reason} ({actor})" if reason else f"by {actor}"
        with suppress(ConflictError, NotFoundError):  # the run has ended or is deleted
            cancel_run(
                run_id, database=self._database, clock=self._clock, reason=by[:LONGEST_REASON]
            )
        return False

    def _find(self, session: Session, ids: Collection[int]) -> Mapping[int, "Run"]:
        from automation_pipeline.automation.queries.run_details import runs_by_id

        return runs_by_id(session, ids)

    def _end(self, id_: int, work: "Run | None") -> AttemptEnd | None:
        from automation_pipeline.automation.models.runs import RunStatus

        if work is None:
            return attempt_failed(f"Automation run {id_} is gone.", NOT_FOUND)
        if work.completed_at is None:
            return None
        failed = f"All {work.failed_fiches} fiches of automation run {id_} failed."
        error = work.error_message or failed
        if work.status is RunStatus.CANCELLED:
            return attempt_cancelled(error)
        result = {
            self.key: str(work.id),
            "status": work.status,
            "selected": work.selected_fiches,
            "successful": work.successful_fiches,
            "failed": work.failed_fiches,
            "ignored": work.ignored_fiches,
        }
        if work.status is RunStatus.FAILED:
            return attempt_failed(error, FAILED, result)
        return attempt_succeeded(result)


class PricingRuleJob(FollowedWork["RuleRun"]):
    """Applies a pricing rule. APPLIED and PARTIAL runs are a success, whose result counts the
    failed targets. The job waits for a preview's approval until the preview expires, which is then
    a conflict. A rule in its cooldown and a rule with an active run are conflicts too."""

    key = "ruleRunId"

    def __init__(self, database: Database, clock: Clock, shop: Callable[[], str]) -> None:
        super().__init__(database, clock)
        self._shop = shop

    def start(self, context: JobContext) -> Mapping[str, object]:
        from automation_pipeline.pricing.models.runs import RuleTrigger
        from automation_pipeline.pricing.runs import request_rule_run

        payload = parse(PricingRulePayload, context.payload, REFUSED)
        # With this trigger, a run without changes is applied instead of refused.
        run_id = request_rule_run(
            payload.rule_id,
            database=self._database,
            clock=self._clock,
            shop=self._shop(),
            actor=f"org-job:{context.job_id}",
            trigger=RuleTrigger.SCHEDULE,
            force=payload.force,
        )
        return {self.key: str(run_id)}

    def cancel(
        self,
        following: Mapping[str, object],
        actor: str,
        reason: str | None = None,  # noqa: ARG002  required by the protocol
    ) -> bool:
        """A preview that waits for its approval needs no cancellation, because it is applied only
        on an explicit request and expires."""
        from automation_pipeline.pricing.models.runs import PricingRunState
        from automation_pipeline.pricing.runs import cancel_run

        run_id = self._id_in(following)
        try:
            cancel_run(run_id, database=self._database, clock=self._clock, actor=actor)
        except ConflictError:
            with self._database.reading() as session:
                run = self._find(session, {run_id}).get(run_id)
            return run is not None and run.status is PricingRunState.PREVIEW and run.wish is None
        except NotFoundError:
            return False
        return False

    def _find(self, session: Session, ids: Collection[int]) -> Mapping[int, "RuleRun"]:
        from automation_pipeline.pricing.queries.runs import runs_by_id

        return runs_by_id(session, set(ids))

    def _end(self, id_: int, work: "RuleRun | None") -> AttemptEnd | None:
        from automation_pipeline.pricing.models.runs import ENDED_RUN_STATES, PricingRunState

        if work is None:
            return attempt_failed(f"Rule run {id_} is gone.", NOT_FOUND)
        if work.status is PricingRunState.PREVIEW:
            return self._end_of_preview(work)
        if work.status not in ENDED_RUN_STATES:
            return None
        result = self._result(work)
        if work.status is PricingRunState.PARTIAL:
            count = f"{work.targets.failed} of {work.total_targets}"
            result["note"] = f"{count} prices could not be set: see the dead letters of the run."
        if work.cancel_requested_at is not None and work.status is not PricingRunState.APPLIED:
            return attempt_cancelled(f"Rule run {id_} was cancelled.", result)
        if work.status is PricingRunState.FAILED:
            return attempt_failed(work.error_message or f"Rule run {id_} failed.", FAILED, result)
        return attempt_succeeded(result)

    def _end_of_preview(self, run: "RuleRun") -> AttemptEnd | None:
        from automation_pipeline.pricing.rules.runs import PREVIEW_LIFETIME

        if run.cancel_requested_at is not None:
            return attempt_cancelled(f"Rule run {run.id} was cancelled.")
        if run.wish is not None or run.previewed_at is None:
            return None
        if self._clock.now() - run.previewed_at <= PREVIEW_LIFETIME:
            return None
        error = f"Rule run {run.id} stayed a preview: {run.error_message or 'it was not queued.'}"
        return attempt_failed(error, CONFLICT, self._result(run))

    def _result(self, run: "RuleRun") -> dict[str, object]:
        return {
            self.key: str(run.id),
            "status": run.status,
            "targets": run.total_targets,
            "applied": run.targets.applied,
            "failed": run.targets.failed,
            "skipped": run.skipped,
            "blocked": run.blocked,
        }


class CompanyEnrichmentJob(FollowedWork["RequestShown"]):
    """Enriches a company. SUCCESS and PARTIAL are a success. An enrichment cannot be cancelled, because
    other requests may wait for it."""

    key = "companyRequestId"

    def __init__(
        self, database: Database, clock: Clock, registries: Callable[[], "Registries"]
    ) -> None:
        super().__init__(database, clock)
        self._registries = registries

    def start(self, context: JobContext) -> Mapping[str, object]:
        from automation_pipeline.enrichment.models import Requester, check_configured
        from automation_pipeline.enrichment.requests import request_enrichment

        payload = parse(CompanyEnrichmentPayload, context.payload, REFUSED)
        registries = self._registries()
        check_configured(registries.sources)
        key = f"{context.key}-{context.attempt_no}"
        requester = Requester(
            tenant_id=context.org_id,
            correlation_id=usable_id(key),
            actor=f"org-job:{context.job_id}",
            idempotency_key=key,
        )
        kind = "siren" if len(payload.company) == SIREN_DIGITS else "siret"
        filed = request_enrichment(
            {kind: payload.company},
            requester,
            options=registries.options,
            database=self._database,
            clock=self._clock,
            force=payload.force,
        )
        return {self.key: str(filed.request_id)}

    def cancel(
        self,
        following: Mapping[str, object],  # noqa: ARG002  required by the protocol
        actor: str,  # noqa: ARG002  required by the protocol
        reason: str | None = None,  # noqa: ARG002  required by the protocol
    ) -> bool:
        return True

    def _find(self, session: Session, ids: Collection[int]) -> Mapping[int, "RequestShown"]:
        from automation_pipeline.enrichment.queries.requests import request_statuses

        return {one.request.id: one for one in request_statuses(session, sorted(ids))}

    def _end(self, id_: int, work: "RequestShown | None") -> AttemptEnd | None:
        from automation_pipeline.enrichment.models import EnrichmentStatus

        if work is None:
            return attempt_failed(f"Request {id_} for a company is gone.", NOT_FOUND)
        if work.enrichment_running:
            return None
        request = work.request
        siren, status = request.company_siren, request.enrichment_status
        result = {self.key: str(id_), "siren": siren, "status": status}
        if status in {EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL}:
            return attempt_succeeded(result)
        error = f"Company {siren} is {status}: {request.enrichment_error or 'no source was called'}"
        return attempt_failed(error, FAILED, result)


KEY_HEADER = "Idempotency-Key"


class HttpsCallJob:
    """Calls an HTTPS address. All attempts of a run send its key as Idempotency-Key, so that a
    receiver recognises repetitions. A refusal or a redirect is final; a server error is retried."""

    def __init__(
        self, open_caller: Callable[[], HttpsCaller], environment: Mapping[str, str]
    ) -> None:
        self._open_caller, self._environment = open_caller, environment

    async def work(self, context: JobContext) -> AttemptEnd:
        payload = parse(HttpsCallPayload, context.payload, REFUSED)
        request = self._request(payload, context)
        answer = await self._open_caller().call(request)
        result = {"status": answer.status, "text": answer.text}
        if payload.is_success(answer.status):
            return attempt_succeeded(result)
        is_final = 300 <= answer.status < 500 and answer.status not in TRANSIENT_STATUSES
        error = f"{origin_of(request.url)} answered {answer.status}."
        return attempt_failed(error, VALIDATION if is_final else FAILED, result)

    def _request(self, payload: HttpsCallPayload, context: JobContext) -> HttpsRequest:
        secrets = secrets_of(context.payload, context.org_id, self._environment)
        for name, secret in secrets.items():
            if not (secret.isascii() and secret.isprintable()):
                variable = variable_of(context.org_id, name)
                raise InvalidInputError(f"{variable} holds characters that cannot be sent.")
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


def service_job_runners(
    database: Database,
    clock: Clock,
    *,
    shop: Callable[[], str],
    registries: "Callable[[], Registries]",
    open_caller: Callable[[], HttpsCaller],
) -> Mapping[str, JobRunner]:
    """The runner of each service type. `shop`, `registries` and `open_caller` are called when a job
    needs them. Secrets come from the environment of this process."""
    return {
        AUTOMATION_RUN: AutomationRunJob(database, clock),
        PRICING_RULE_APPLY: PricingRuleJob(database, clock, shop),
        COMPANY_ENRICHMENT: CompanyEnrichmentJob(database, clock, registries),
        HTTPS_CALL: HttpsCallJob(open_caller, environ),
    }
