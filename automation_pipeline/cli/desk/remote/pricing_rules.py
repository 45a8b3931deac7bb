"""Pricing rules by the API."""

from collections.abc import Sequence

from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, list_of, read
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.pricing_rule import PricingRule, RuleVersion
from automation_pipeline.pricing.domain.rule_run import RuleRun

PATH = "/api/pricing/rules"


class RemotePricingRules:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document, project_id: str) -> PricingRule:
        return as_model(PricingRule, data_of(self._api.post(PATH, given, query={"project": project_id})))

    def listed(
        self, *, project_id: str | None, enabled: bool | None, query: str | None, span: Span
    ) -> Sequence[PricingRule]:
        asked = {"project": project_id, "enabled": enabled, "q": query, "limit": span.limit, "offset": span.offset}
        return [as_model(PricingRule, one) for one in list_of(self._api.get(PATH, asked))]

    def get(self, rule_id: int) -> PricingRule:
        return as_model(PricingRule, data_of(self._api.get(f"{PATH}/{rule_id}")))

    def versions(self, rule_id: int, span: Span) -> Sequence[RuleVersion]:
        asked = {"limit": span.limit, "offset": span.offset}
        return [as_model(RuleVersion, one) for one in list_of(self._api.get(f"{PATH}/{rule_id}/versions", asked))]

    def update(self, rule_id: int, patch: Document) -> PricingRule:
        return as_model(PricingRule, data_of(self._api.patch(f"{PATH}/{rule_id}", patch)))

    def delete(self, rule_id: int) -> None:
        self._api.delete(f"{PATH}/{rule_id}")

    def preview(self, rule_id: int) -> RuleRun:
        return as_model(RuleRun, data_of(self._api.post(f"{PATH}/{rule_id}/preview")))

    def request_run(self, rule_id: int, *, force: bool) -> RuleRun:
        asked = self._api.post(f"{PATH}/{rule_id}/apply", {"force": force})
        run_id = read(lambda: int(str(data_of(asked)["id"])))
        return as_model(RuleRun, data_of(self._api.get(f"/api/pricing/runs/{run_id}")))
