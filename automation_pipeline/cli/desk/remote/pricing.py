"""Pricing by the API: the shop, its alerts and what was written. The rest is in its neighbours."""

from collections.abc import Sequence

from automation_pipeline.api.schemas.pricing_shop import ShopShown
from automation_pipeline.cli.desk.remote.api import Api, as_model, data_of, list_of
from automation_pipeline.cli.desk.remote.pricing_projects import RemoteDeadLetters, RemotePolicies
from automation_pipeline.cli.desk.remote.pricing_rules import RemotePricingRules
from automation_pipeline.cli.desk.remote.pricing_runs import RemotePricingRuns
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.price_change import PriceChange, PriceChangeFilter
from automation_pipeline.pricing.domain.raised_alert import PricingAlert

PATH = "/api/pricing"


class RemoteShop:
    def __init__(self, api: Api) -> None:
        self._api = api

    def standing(self) -> ShopShown:
        return as_model(ShopShown, data_of(self._api.get(f"{PATH}/shop")))

    def pause(self, reason: str | None) -> ShopShown:
        return as_model(ShopShown, data_of(self._api.post(f"{PATH}/shop/pause", {"reason": reason})))

    def resume(self) -> ShopShown:
        return as_model(ShopShown, data_of(self._api.post(f"{PATH}/shop/resume")))


class RemotePricing:
    def __init__(self, api: Api) -> None:
        self._api = api
        self.rules = RemotePricingRules(api)
        self.runs = RemotePricingRuns(api)
        self.dead_letters = RemoteDeadLetters(api)
        self.policies = RemotePolicies(api)
        self.shop = RemoteShop(api)

    def alerts(self, *, project_id: str | None, span: Span) -> Sequence[PricingAlert]:
        asked = {"project": project_id, "limit": span.limit, "offset": span.offset}
        return [as_model(PricingAlert, one) for one in list_of(self._api.get(f"{PATH}/alerts", asked))]

    def changes(self, chosen: PriceChangeFilter, *, limit: int, after_id: int = 0) -> Sequence[PriceChange]:
        named = {"project": chosen.project_id, "variant": chosen.variant_id, "run_id": chosen.run_id}
        found = list_of(self._api.get(f"{PATH}/price-changes", {**named, "limit": limit, "after": after_id}))
        return [as_model(PriceChange, one) for one in found]
