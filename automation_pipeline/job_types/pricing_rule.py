"""PRICING_RULE_APPLY: a run of a pricing rule is asked for and followed to its end."""

from collections.abc import Callable, Mapping
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, cancelled, succeeded
from automation_pipeline.org_jobs.domain.failures import CONFLICT, NOT_FOUND
from automation_pipeline.org_jobs.domain.payloads_of_ours import PricingRulePayload
from automation_pipeline.org_jobs.domain.retry_policy import FAILED
from automation_pipeline.org_jobs.domain.states import RunState as JobRunState
from automation_pipeline.org_jobs.ports import AskedJob
from automation_pipeline.pricing.domain.preview import LIFETIME
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTrigger
from automation_pipeline.pricing.domain.states import ENDED_RUN_STATES, RunState
from automation_pipeline.pricing.stages.cancel_run import cancel_run
from automation_pipeline.pricing.stages.request_rule_run import request_rule_run
from automation_pipeline.pricing.store.run_views import runs_by_id
from automation_pipeline.storage.database import Database

RUN_ID = "ruleRunId"


class PricingRuleApply:
    """APPLIED and PARTIAL runs are a success: targets that failed are among the dead letters, and the result counts
    them. A run that stays a preview, because somebody must approve it or something stands in its way, is waited for
    while it may still be queued; then it is a conflict, as a rule that rests or has a run already is."""

    def __init__(self, database: Database, clock: Clock, shop: Callable[[], str]) -> None:
        self._database, self._clock, self._shop = database, clock, shop

    def start(self, asked: AskedJob) -> Mapping[str, object]:
        payload = parse(PricingRulePayload, asked.payload, "The stored payload is refused")
        # By its trigger a run that finds nothing to change is applied, and not refused.
        run_id = request_rule_run(
            payload.rule_id,
            database=self._database,
            clock=self._clock,
            shop=self._shop(),
            actor=f"org-job:{asked.job_id}",
            trigger=RuleTrigger.SCHEDULE,
            force=payload.force,
        )
        return {RUN_ID: str(run_id)}

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        run_ids = {number: _run_id(following) for number, following in followed.items()}
        with self._database.reading() as session:
            runs = runs_by_id(session, set(run_ids.values()))
        now = self._clock.now()
        ends = {number: _end(run_id, runs.get(run_id), now) for number, run_id in run_ids.items()}
        return {number: end for number, end in ends.items() if end is not None}

    def cancel(self, following: Mapping[str, object], actor: str, reason: str | None = None) -> bool:
        """A preview that waits for its approval cannot be cancelled, and need not be: whoever approves it must ask for
        it to be applied as well, and it grows old by itself."""
        _ = reason
        try:
            cancel_run(_run_id(following), database=self._database, clock=self._clock, actor=actor)
        except ConflictError:
            return self._is_mere_preview(_run_id(following))
        except NotFoundError:
            return False
        return False

    def _is_mere_preview(self, run_id: int) -> bool:
        with self._database.reading() as session:
            run = runs_by_id(session, {run_id}).get(run_id)
        return run is not None and run.status is RunState.PREVIEW and run.wish is None


def _run_id(following: Mapping[str, object]) -> int:
    return int(str(following[RUN_ID]))


def _end(run_id: int, run: RuleRun | None, now: datetime) -> AttemptEnd | None:
    if run is None:
        return _failed(NOT_FOUND, f"Rule run {run_id} is gone.")
    if run.status is RunState.PREVIEW:
        return _end_of_preview(run, now)
    if run.status not in ENDED_RUN_STATES:
        return None
    if run.cancel_requested_at is not None and run.status is not RunState.APPLIED:
        return AttemptEnd(status=JobRunState.CANCELLED, error=f"Rule run {run_id} was cancelled.", result=_result(run))
    if run.status is RunState.FAILED:
        return _failed(FAILED, run.error_message or f"Rule run {run_id} failed.", _result(run))
    return succeeded(_result(run))


def _end_of_preview(run: RuleRun, now: datetime) -> AttemptEnd | None:
    if run.cancel_requested_at is not None:
        return cancelled(f"Rule run {run.id} was cancelled.")
    if run.wish is not None or run.previewed_at is None or now - run.previewed_at <= LIFETIME:
        return None
    why = run.error_message or "nobody queued it."
    return _failed(CONFLICT, f"Rule run {run.id} stayed a preview: {why}", _result(run))


def _failed(code: str, error: str, result: Mapping[str, object] | None = None) -> AttemptEnd:
    return AttemptEnd(status=JobRunState.FAILED, error_code=code, error=error, result=result)


def _result(run: RuleRun) -> dict[str, object]:
    counts = {
        "targets": run.total_targets,
        "applied": run.targets.applied,
        "failed": run.targets.failed,
        "skipped": run.skipped,
        "blocked": run.blocked,
    }
    known: dict[str, object] = {RUN_ID: str(run.id), "status": run.status, **counts}
    if run.status is not RunState.PARTIAL:
        return known
    note = f"{run.targets.failed} of {run.total_targets} prices could not be set: see the dead letters of the run."
    return {**known, "note": note}
