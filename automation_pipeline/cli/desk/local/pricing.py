"""Pricing at the desk of this process: the shop, its alerts and what was written. The rest is in its neighbours."""

from collections.abc import Sequence

from automation_pipeline.api.schemas.pricing_shop import ShopShown
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.pricing_projects import LocalDeadLetters, LocalPolicies
from automation_pipeline.cli.desk.local.pricing_rules import LocalPricingRules
from automation_pipeline.cli.desk.local.pricing_runs import LocalPricingRuns
from automation_pipeline.cli.desk.local.project_names import refuse_strange_project
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.price_change import PriceChange, PriceChangeFilter
from automation_pipeline.pricing.domain.raised_alert import PricingAlert
from automation_pipeline.pricing.stages.pause_shop import pause_shop
from automation_pipeline.pricing.stages.resume_shop import resume_shop
from automation_pipeline.pricing.store.alerts import list_alerts
from automation_pipeline.pricing.store.price_changes import price_changes
from automation_pipeline.pricing.store.shops import standing_of


class LocalShop:
    def __init__(self, services: Services) -> None:
        self._services = services

    def standing(self) -> ShopShown:
        name = self._services.storefront.name
        with self._services.database.reading() as session:
            standing = standing_of(session, name)
        return ShopShown(shop=name) if standing is None else ShopShown.of(standing)

    def pause(self, reason: str | None) -> ShopShown:
        our = self._services
        return ShopShown.of(pause_shop(our.storefront.name, database=our.database, actor=actor(), reason=reason))

    def resume(self) -> ShopShown:
        our = self._services
        return ShopShown.of(resume_shop(our.storefront.name, database=our.database, clock=our.clock))


class LocalPricing:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.rules = LocalPricingRules(services)
        self.runs = LocalPricingRuns(services)
        self.dead_letters = LocalDeadLetters(services)
        self.policies = LocalPolicies(services)
        self.shop = LocalShop(services)

    def alerts(self, *, project_id: str | None, span: Span) -> Sequence[PricingAlert]:
        refuse_strange_project(project_id)
        with self._services.database.reading() as session:
            return list_alerts(session, project_id, span.limit, span.offset)

    def changes(self, chosen: PriceChangeFilter, *, limit: int, after_id: int = 0) -> Sequence[PriceChange]:
        refuse_strange_project(chosen.project_id)
        with self._services.database.reading() as session:
            return price_changes(session, chosen, limit, after_id)
