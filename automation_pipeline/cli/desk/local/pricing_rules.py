"""Pricing rules by the stages and stores."""

from collections.abc import Mapping, Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.project_names import refuse_strange_project
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.pricing.domain.pricing_rule import PricingRule, RuleVersion
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTrigger
from automation_pipeline.pricing.stages.create_rule import create_rule
from automation_pipeline.pricing.stages.delete_rule import delete_rule
from automation_pipeline.pricing.stages.preview_rule import preview_rule
from automation_pipeline.pricing.stages.request_rule_run import request_rule_run
from automation_pipeline.pricing.stages.update_rule import update_rule
from automation_pipeline.pricing.store.rules import get_rule, list_rules, versions_of
from automation_pipeline.pricing.store.run_views import get_run


class LocalPricingRules:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Mapping[str, object], project_id: str) -> PricingRule:
        our = self._services
        return create_rule(given, project_id=project_id, database=our.database, clock=our.clock, actor=actor())

    def listed(
        self, *, project_id: str | None, enabled: bool | None, query: str | None, span: Span
    ) -> Sequence[PricingRule]:
        refuse_strange_project(project_id)
        with self._services.database.reading() as session:
            return list_rules(
                session, project_id=project_id, enabled=enabled, q=query, limit=span.limit, offset=span.offset
            )

    def get(self, rule_id: int) -> PricingRule:
        with self._services.database.reading() as session:
            return get_rule(session, rule_id)

    def versions(self, rule_id: int, span: Span) -> Sequence[RuleVersion]:
        with self._services.database.reading() as session:
            return versions_of(session, rule_id, span.limit, span.offset)

    def update(self, rule_id: int, patch: Mapping[str, object]) -> PricingRule:
        our = self._services
        return update_rule(rule_id, patch, database=our.database, clock=our.clock, actor=actor())

    def delete(self, rule_id: int) -> None:
        our = self._services
        delete_rule(rule_id, database=our.database, clock=our.clock, actor=actor())

    def preview(self, rule_id: int) -> RuleRun:
        our = self._services
        plan = preview_rule(
            rule_id,
            front=our.storefront,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            trigger=RuleTrigger.CLI,
        )
        return our.run(plan)

    def request_run(self, rule_id: int, *, force: bool) -> RuleRun:
        our = self._services
        run_id = request_rule_run(
            rule_id,
            database=our.database,
            clock=our.clock,
            shop=our.storefront.name,
            actor=actor(),
            trigger=RuleTrigger.CLI,
            force=force,
        )
        with our.database.reading() as session:
            return get_run(session, run_id)
