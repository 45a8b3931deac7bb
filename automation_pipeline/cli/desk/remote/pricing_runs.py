"""Runs of pricing rules by the API."""

from collections.abc import Sequence

from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, list_of
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget, SkippedVariant
from automation_pipeline.pricing.domain.run_log import LoggedMove
from automation_pipeline.pricing.domain.states import RunState, TargetState

PATH = "/api/pricing/runs"


class RemotePricingRuns:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(
        self, *, project_id: str | None, rule_id: int | None, status: RunState | None, span: Span
    ) -> Sequence[RuleRun]:
        chosen = {"project": project_id, "rule_id": rule_id, "status": status}
        page = {"limit": span.limit, "offset": span.offset}
        return [as_model(RuleRun, one) for one in list_of(self._api.get(PATH, {**chosen, **page}))]

    def get(self, run_id: int) -> RuleRun:
        return as_model(RuleRun, data_of(self._api.get(f"{PATH}/{run_id}")))

    def targets(
        self, run_id: int, *, status: TargetState | None, limit: int, after_id: int = 0
    ) -> Sequence[RuleTarget]:
        asked = {"status": status, "limit": limit, "after": after_id}
        return [as_model(RuleTarget, one) for one in list_of(self._api.get(f"{PATH}/{run_id}/targets", asked))]

    def skipped(self, run_id: int, *, reason: str | None, span: Span) -> Sequence[SkippedVariant]:
        asked = {"reason": reason, "limit": span.limit, "offset": span.offset}
        return [as_model(SkippedVariant, one) for one in list_of(self._api.get(f"{PATH}/{run_id}/skipped", asked))]

    def log(self, run_id: int, *, limit: int, after_id: int = 0) -> Sequence[LoggedMove]:
        lines = list_of(self._api.get(f"{PATH}/{run_id}/log", {"limit": limit, "after": after_id}))
        return [as_model(LoggedMove, one) for one in lines]

    def approve(self, run_id: int) -> RuleRun:
        return self._done(run_id, "approve")

    def apply(self, run_id: int, *, force: bool) -> RuleRun:
        return self._done(run_id, "apply", {"force": force})

    def retry(self, run_id: int, *, target_ids: Sequence[int] | None, force: bool) -> RuleRun:
        return self._done(run_id, "retry", _chosen(target_ids, force=force))

    def roll_back(self, run_id: int, *, target_ids: Sequence[int] | None, force: bool) -> RuleRun:
        return self._done(run_id, "rollback", _chosen(target_ids, force=force))

    def cancel(self, run_id: int) -> RuleRun:
        return self._done(run_id, "cancel")

    def reconcile(self, run_id: int) -> ReconciliationReport:
        return as_model(ReconciliationReport, data_of(self._api.post(f"{PATH}/{run_id}/reconcile")))

    def repair(self, run_id: int) -> RuleRun:
        return self._done(run_id, "repair")

    def _done(self, run_id: int, what: str, body: Document | None = None) -> RuleRun:
        return as_model(RuleRun, data_of(self._api.post(f"{PATH}/{run_id}/{what}", body)))


def _chosen(target_ids: Sequence[int] | None, *, force: bool) -> Document:
    named = {} if target_ids is None else {"targetIds": [str(target_id) for target_id in target_ids]}
    return {**named, "force": force}
