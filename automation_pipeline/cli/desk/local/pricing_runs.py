"""Runs of pricing rules by the stages and stores."""

from collections.abc import Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.project_names import refuse_strange_project
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget, SkippedVariant
from automation_pipeline.pricing.domain.run_filter import RunFilter
from automation_pipeline.pricing.domain.run_log import LoggedMove
from automation_pipeline.pricing.domain.states import RunState, TargetState
from automation_pipeline.pricing.stages.approve_run import approve_run
from automation_pipeline.pricing.stages.cancel_run import cancel_run
from automation_pipeline.pricing.stages.queue_run import queue_run
from automation_pipeline.pricing.stages.reconcile_run import reconcile_run
from automation_pipeline.pricing.stages.repair_run import repair_run
from automation_pipeline.pricing.stages.retry_run import retry_run
from automation_pipeline.pricing.stages.roll_back_run import roll_back_run
from automation_pipeline.pricing.store.checks import checks_of
from automation_pipeline.pricing.store.run_views import get_run, list_runs, skipped_of, targets_of, transitions_of

MANUAL = "manual-"


class LocalPricingRuns:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(
        self, *, project_id: str | None, rule_id: int | None, status: RunState | None, span: Span
    ) -> Sequence[RuleRun]:
        refuse_strange_project(project_id)
        chosen = RunFilter(project_id=project_id, rule_id=rule_id, status=status)
        with self._services.database.reading() as session:
            return list_runs(session, chosen, span.limit, span.offset)

    def get(self, run_id: int) -> RuleRun:
        with self._services.database.reading() as session:
            return get_run(session, run_id)

    def targets(
        self, run_id: int, *, status: TargetState | None, limit: int, after_id: int = 0
    ) -> Sequence[RuleTarget]:
        with self._services.database.reading() as session:
            return targets_of(session, run_id, status=status, limit=limit, after_id=after_id)

    def skipped(self, run_id: int, *, reason: str | None, span: Span) -> Sequence[SkippedVariant]:
        with self._services.database.reading() as session:
            return skipped_of(session, run_id, reason=reason, limit=span.limit, offset=span.offset)

    def log(self, run_id: int, *, limit: int, after_id: int = 0) -> Sequence[LoggedMove]:
        with self._services.database.reading() as session:
            return transitions_of(session, run_id, limit, after_id)

    def approve(self, run_id: int) -> RuleRun:
        our = self._services
        return approve_run(run_id, database=our.database, clock=our.clock, actor=actor())

    def apply(self, run_id: int, *, force: bool) -> RuleRun:
        our = self._services
        return queue_run(run_id, database=our.database, clock=our.clock, actor=actor(), force=force)

    def retry(self, run_id: int, *, target_ids: Sequence[int] | None, force: bool) -> RuleRun:
        our = self._services
        return retry_run(
            run_id, database=our.database, clock=our.clock, actor=actor(), target_ids=target_ids, force=force
        )

    def roll_back(self, run_id: int, *, target_ids: Sequence[int] | None, force: bool) -> RuleRun:
        our = self._services
        return roll_back_run(
            run_id, database=our.database, clock=our.clock, actor=actor(), target_ids=target_ids, force=force
        )

    def cancel(self, run_id: int) -> RuleRun:
        our = self._services
        return cancel_run(run_id, database=our.database, clock=our.clock, actor=actor())

    def reconcile(self, run_id: int) -> ReconciliationReport:
        our = self._services
        with our.database.reading() as session:
            manual = sum(check.name.startswith(MANUAL) for check in checks_of(session, run_id))
        check = reconcile_run(
            run_id, front=our.storefront, database=our.database, clock=our.clock, name=f"{MANUAL}{manual + 1}"
        )
        return our.run(check)

    def repair(self, run_id: int) -> RuleRun:
        our = self._services
        return repair_run(run_id, database=our.database, clock=our.clock, actor=actor())
