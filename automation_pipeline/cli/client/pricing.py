"""Prices, here and by the API."""

from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import quote

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.http import Api, Document, as_model, data_of, list_of, read
from automation_pipeline.cli.client.ports import Span
from automation_pipeline.cli.operations import actor
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.checks import reconcile_run, repair_run
from automation_pipeline.pricing.dead_letters import (
    acknowledge_dead_letters,
    report_dead_letters,
    retry_dead_letters,
)
from automation_pipeline.pricing.models.history import (
    DeadLetterReport,
    PriceChange,
    PriceChangeFilter,
    PricingAlert,
    ReconciliationReport,
)
from automation_pipeline.pricing.models.rules import Policy, PricingRule, RuleVersion, check_project
from automation_pipeline.pricing.models.runs import (
    LoggedMove,
    PricingRunState,
    RuleRun,
    RuleRunFilter,
    RuleTarget,
    RuleTrigger,
    SkippedVariant,
    TargetState,
)
from automation_pipeline.pricing.planning import preview_rule
from automation_pipeline.pricing.pricing_rules import (
    create_rule,
    delete_rule,
    put_policy,
    remove_policy,
    update_rule,
)
from automation_pipeline.pricing.queries.checks import checks_of
from automation_pipeline.pricing.queries.history import list_alerts, price_changes
from automation_pipeline.pricing.queries.rules import get_rule, list_rules, policy_of, versions_of
from automation_pipeline.pricing.queries.runs import (
    get_run,
    list_runs,
    skipped_of,
    targets_of,
    transitions_of,
)
from automation_pipeline.pricing.queries.shops import shop_status
from automation_pipeline.pricing.runs import (
    approve_run,
    cancel_run,
    queue_run,
    request_rule_run,
    retry_run,
    roll_back_run,
)
from automation_pipeline.pricing.shop import ShopShown, pause_shop, resume_shop


def refuse_strange_project(project_id: str | None) -> None:
    """In the words of the API; None is every project."""
    if project_id is not None:
        check_project(project_id, "Invalid request")


class LocalDeadLetters:
    def __init__(self, services: Services) -> None:
        self._services = services

    def report(self, project_id: str) -> DeadLetterReport:
        refuse_strange_project(project_id)
        services = self._services
        return report_dead_letters(project_id, database=services.database, clock=services.clock)

    def retry(self, project_id: str, *, force: bool) -> Sequence[int]:
        refuse_strange_project(project_id)
        services = self._services
        return retry_dead_letters(
            project_id, database=services.database, clock=services.clock, actor=actor(), force=force
        )

    def acknowledge(self, project_id: str, target_ids: Sequence[int] | None) -> int:
        refuse_strange_project(project_id)
        services = self._services
        return acknowledge_dead_letters(
            project_id, target_ids, database=services.database, clock=services.clock, actor=actor()
        )


class LocalPolicies:
    def __init__(self, services: Services) -> None:
        self._services = services

    def get(self, project_id: str) -> Policy | None:
        refuse_strange_project(project_id)
        with self._services.database.reading() as session:
            return policy_of(session, project_id)

    def put(self, project_id: str, given: Mapping[str, object]) -> Policy:
        services = self._services
        return put_policy(
            project_id, given, database=services.database, clock=services.clock, actor=actor()
        )

    def remove(self, project_id: str) -> None:
        refuse_strange_project(project_id)
        services = self._services
        remove_policy(project_id, database=services.database, clock=services.clock, actor=actor())


class LocalPricingRules:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Mapping[str, object], project_id: str) -> PricingRule:
        services = self._services
        return create_rule(
            given,
            project_id=project_id,
            database=services.database,
            clock=services.clock,
            actor=actor(),
        )

    def listed(
        self, *, project_id: str | None, enabled: bool | None, query: str | None, span: Span
    ) -> Sequence[PricingRule]:
        refuse_strange_project(project_id)
        with self._services.database.reading() as session:
            return list_rules(
                session,
                project_id=project_id,
                enabled=enabled,
                q=query,
                limit=span.limit,
                offset=span.offset,
            )

    def get(self, rule_id: int) -> PricingRule:
        with self._services.database.reading() as session:
            return get_rule(session, rule_id)

    def versions(self, rule_id: int, span: Span) -> Sequence[RuleVersion]:
        with self._services.database.reading() as session:
            return versions_of(session, rule_id, span.limit, span.offset)

    def update(self, rule_id: int, patch: Mapping[str, object]) -> PricingRule:
        services = self._services
        return update_rule(
            rule_id, patch, database=services.database, clock=services.clock, actor=actor()
        )

    def delete(self, rule_id: int) -> None:
        services = self._services
        delete_rule(rule_id, database=services.database, clock=services.clock, actor=actor())

    def preview(self, rule_id: int) -> RuleRun:
        services = self._services
        plan = preview_rule(
            rule_id,
            front=services.storefront,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            trigger=RuleTrigger.CLI,
        )
        return services.run(plan)

    def request_run(self, rule_id: int, *, force: bool) -> RuleRun:
        services = self._services
        run_id = request_rule_run(
            rule_id,
            database=services.database,
            clock=services.clock,
            shop=services.storefront.name,
            actor=actor(),
            trigger=RuleTrigger.CLI,
            force=force,
        )
        with services.database.reading() as session:
            return get_run(session, run_id)


MANUAL = "manual-"


class LocalPricingRuns:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(
        self,
        *,
        project_id: str | None,
        rule_id: int | None,
        status: PricingRunState | None,
        span: Span,
    ) -> Sequence[RuleRun]:
        refuse_strange_project(project_id)
        chosen = RuleRunFilter(project_id=project_id, rule_id=rule_id, status=status)
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
        services = self._services
        return approve_run(run_id, database=services.database, clock=services.clock, actor=actor())

    def apply(self, run_id: int, *, force: bool) -> RuleRun:
        services = self._services
        return queue_run(
            run_id, database=services.database, clock=services.clock, actor=actor(), force=force
        )

    def retry(self, run_id: int, *, target_ids: Sequence[int] | None, force: bool) -> RuleRun:
        services = self._services
        return retry_run(
            run_id,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            target_ids=target_ids,
            force=force,
        )

    def roll_back(self, run_id: int, *, target_ids: Sequence[int] | None, force: bool) -> RuleRun:
        services = self._services
        return roll_back_run(
            run_id,
            database=services.database,
            clock=services.clock,
            actor=actor(),
            target_ids=target_ids,
            force=force,
        )

    def cancel(self, run_id: int) -> RuleRun:
        services = self._services
        return cancel_run(run_id, database=services.database, clock=services.clock, actor=actor())

    def reconcile(self, run_id: int) -> ReconciliationReport:
        services = self._services
        with services.database.reading() as session:
            manual = sum(check.name.startswith(MANUAL) for check in checks_of(session, run_id))
        check = reconcile_run(
            run_id,
            front=services.storefront,
            database=services.database,
            clock=services.clock,
            name=f"{MANUAL}{manual + 1}",
        )
        return services.run(check)

    def repair(self, run_id: int) -> RuleRun:
        services = self._services
        return repair_run(run_id, database=services.database, clock=services.clock, actor=actor())


class LocalShop:
    def __init__(self, services: Services) -> None:
        self._services = services

    def standing(self) -> ShopShown:
        name = self._services.storefront.name
        with self._services.database.reading() as session:
            standing = shop_status(session, name)
        return ShopShown(shop=name) if standing is None else ShopShown.of(standing)

    def pause(self, reason: str | None) -> ShopShown:
        services = self._services
        return ShopShown.of(
            pause_shop(
                services.storefront.name, database=services.database, actor=actor(), reason=reason
            )
        )

    def resume(self) -> ShopShown:
        services = self._services
        return ShopShown.of(
            resume_shop(services.storefront.name, database=services.database, clock=services.clock)
        )


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

    def changes(
        self, chosen: PriceChangeFilter, *, limit: int, after_id: int = 0
    ) -> Sequence[PriceChange]:
        refuse_strange_project(chosen.project_id)
        with self._services.database.reading() as session:
            return price_changes(session, chosen, limit, after_id)


LETTERS = "/api/pricing/dead-letters"


class RemoteDeadLetters:
    def __init__(self, api: Api) -> None:
        self._api = api

    def report(self, project_id: str) -> DeadLetterReport:
        return as_model(DeadLetterReport, data_of(self._api.get(LETTERS, {"project": project_id})))

    def retry(self, project_id: str, *, force: bool) -> Sequence[int]:
        asked = self._api.post(f"{LETTERS}/retry", {"force": force}, query={"project": project_id})
        return read(
            lambda: [int(run_id) for run_id in cast("Sequence[str]", data_of(asked)["runIds"])]
        )

    def acknowledge(self, project_id: str, target_ids: Sequence[int] | None) -> int:
        named = (
            {}
            if target_ids is None
            else {"targetIds": [str(target_id) for target_id in target_ids]}
        )
        told = data_of(
            self._api.post(f"{LETTERS}/acknowledge", named, query={"project": project_id})
        )
        return read(lambda: int(str(told["acknowledged"])))


class RemotePolicies:
    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, project_id: str) -> Policy | None:
        try:
            return as_model(Policy, data_of(self._api.get(_path(project_id))))
        except NotFoundError:
            return None

    def put(self, project_id: str, given: Document) -> Policy:
        return as_model(Policy, data_of(self._api.put(_path(project_id), given)))

    def remove(self, project_id: str) -> None:
        self._api.delete(_path(project_id))


def _path(project_id: str) -> str:
    return f"/api/pricing/policies/{quote(project_id, safe='')}"


RULES_PATH = "/api/pricing/rules"


class RemotePricingRules:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document, project_id: str) -> PricingRule:
        return as_model(
            PricingRule, data_of(self._api.post(RULES_PATH, given, query={"project": project_id}))
        )

    def listed(
        self, *, project_id: str | None, enabled: bool | None, query: str | None, span: Span
    ) -> Sequence[PricingRule]:
        asked = {
            "project": project_id,
            "enabled": enabled,
            "q": query,
            "limit": span.limit,
            "offset": span.offset,
        }
        return [as_model(PricingRule, one) for one in list_of(self._api.get(RULES_PATH, asked))]

    def get(self, rule_id: int) -> PricingRule:
        return as_model(PricingRule, data_of(self._api.get(f"{RULES_PATH}/{rule_id}")))

    def versions(self, rule_id: int, span: Span) -> Sequence[RuleVersion]:
        asked = {"limit": span.limit, "offset": span.offset}
        return [
            as_model(RuleVersion, one)
            for one in list_of(self._api.get(f"{RULES_PATH}/{rule_id}/versions", asked))
        ]

    def update(self, rule_id: int, patch: Document) -> PricingRule:
        return as_model(PricingRule, data_of(self._api.patch(f"{RULES_PATH}/{rule_id}", patch)))

    def delete(self, rule_id: int) -> None:
        self._api.delete(f"{RULES_PATH}/{rule_id}")

    def preview(self, rule_id: int) -> RuleRun:
        return as_model(RuleRun, data_of(self._api.post(f"{RULES_PATH}/{rule_id}/preview")))

    def request_run(self, rule_id: int, *, force: bool) -> RuleRun:
        asked = self._api.post(f"{RULES_PATH}/{rule_id}/apply", {"force": force})
        run_id = read(lambda: int(str(data_of(asked)["id"])))
        return as_model(RuleRun, data_of(self._api.get(f"/api/pricing/runs/{run_id}")))


PRICE_RUNS_PATH = "/api/pricing/runs"


class RemotePricingRuns:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(
        self,
        *,
        project_id: str | None,
        rule_id: int | None,
        status: PricingRunState | None,
        span: Span,
    ) -> Sequence[RuleRun]:
        chosen = {"project": project_id, "rule_id": rule_id, "status": status}
        page = {"limit": span.limit, "offset": span.offset}
        return [
            as_model(RuleRun, one)
            for one in list_of(self._api.get(PRICE_RUNS_PATH, {**chosen, **page}))
        ]

    def get(self, run_id: int) -> RuleRun:
        return as_model(RuleRun, data_of(self._api.get(f"{PRICE_RUNS_PATH}/{run_id}")))

    def targets(
        self, run_id: int, *, status: TargetState | None, limit: int, after_id: int = 0
    ) -> Sequence[RuleTarget]:
        asked = {"status": status, "limit": limit, "after": after_id}
        return [
            as_model(RuleTarget, one)
            for one in list_of(self._api.get(f"{PRICE_RUNS_PATH}/{run_id}/targets", asked))
        ]

    def skipped(self, run_id: int, *, reason: str | None, span: Span) -> Sequence[SkippedVariant]:
        asked = {"reason": reason, "limit": span.limit, "offset": span.offset}
        return [
            as_model(SkippedVariant, one)
            for one in list_of(self._api.get(f"{PRICE_RUNS_PATH}/{run_id}/skipped", asked))
        ]

    def log(self, run_id: int, *, limit: int, after_id: int = 0) -> Sequence[LoggedMove]:
        lines = list_of(
            self._api.get(f"{PRICE_RUNS_PATH}/{run_id}/log", {"limit": limit, "after": after_id})
        )
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
        return as_model(
            ReconciliationReport, data_of(self._api.post(f"{PRICE_RUNS_PATH}/{run_id}/reconcile"))
        )

    def repair(self, run_id: int) -> RuleRun:
        return self._done(run_id, "repair")

    def _done(self, run_id: int, what: str, body: Document | None = None) -> RuleRun:
        return as_model(
            RuleRun, data_of(self._api.post(f"{PRICE_RUNS_PATH}/{run_id}/{what}", body))
        )


def _chosen(target_ids: Sequence[int] | None, *, force: bool) -> Document:
    named = (
        {} if target_ids is None else {"targetIds": [str(target_id) for target_id in target_ids]}
    )
    return {**named, "force": force}


SHOP_PATH = "/api/pricing"


class RemoteShop:
    def __init__(self, api: Api) -> None:
        self._api = api

    def standing(self) -> ShopShown:
        return as_model(ShopShown, data_of(self._api.get(f"{SHOP_PATH}/shop")))

    def pause(self, reason: str | None) -> ShopShown:
        return as_model(
            ShopShown, data_of(self._api.post(f"{SHOP_PATH}/shop/pause", {"reason": reason}))
        )

    def resume(self) -> ShopShown:
        return as_model(ShopShown, data_of(self._api.post(f"{SHOP_PATH}/shop/resume")))


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
        return [
            as_model(PricingAlert, one)
            for one in list_of(self._api.get(f"{SHOP_PATH}/alerts", asked))
        ]

    def changes(
        self, chosen: PriceChangeFilter, *, limit: int, after_id: int = 0
    ) -> Sequence[PriceChange]:
        named = {
            "project": chosen.project_id,
            "variant": chosen.variant_id,
            "run_id": chosen.run_id,
        }
        found = list_of(
            self._api.get(
                f"{SHOP_PATH}/price-changes", {**named, "limit": limit, "after": after_id}
            )
        )
        return [as_model(PriceChange, one) for one in found]
