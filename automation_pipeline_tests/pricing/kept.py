"""Rules and runs as rows, for the tests of pricing. Importable by processes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, select, update

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.models.rules import TENANT, PricingRule
from automation_pipeline.pricing.models.runs import RuleTrigger
from automation_pipeline.pricing.pricing_rules import create_rule
from automation_pipeline.pricing.rules.runs import DuePriceRules
from automation_pipeline.pricing.runs import request_rule_run
from automation_pipeline.pricing.schedules import start_due_rules
from automation_pipeline.pricing.tables import (
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
    RuleVersionRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow, event_in
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.conftest import StandingClock

SHOP = "shop.example"
GIVEN: dict[str, object] = {
    "name": "Summer sale",
    "selector": {"tag": "summer"},
    "transform": {"op": "percent", "value": -10},
}


def a_rule(
    database: Database, clock: Clock, *, project_id: str = "default", **fields: object
) -> PricingRule:
    return create_rule(
        {**GIVEN, **fields}, project_id=project_id, database=database, clock=clock, actor="user:12"
    )


def asked_for(rule: PricingRule, database: Database, clock: Clock, *, force: bool = False) -> int:
    return request_rule_run(
        rule.id,
        database=database,
        clock=clock,
        shop=SHOP,
        actor="user:12",
        trigger=RuleTrigger.API,
        force=force,
    )


def look(database: Database, clock: Clock) -> DuePriceRules:
    return start_due_rules(database=database, clock=clock, shop=SHOP)


def a_run(
    database: Database,
    rule: PricingRule,
    status: str,
    at: datetime,
    targets: Sequence[str] = (),
    **fields: Any,
) -> int:
    """A run that stands there, with one target a status."""
    ended = status not in {"PREVIEW", "QUEUED", "APPLYING"}
    with database.transaction() as session:
        run = RuleRunRow(
            tenant_id=TENANT,
            project_id=rule.project_id,
            rule_id=rule.id,
            rule_version=rule.version,
            rule_version_hash=rule.version_hash,
            shop=SHOP,
            status=status,
            trigger="api",
            created_by="user:12",
            queued_at=None if status == "PREVIEW" else at,
            started_at=at if ended else None,
            finished_at=at if ended else None,
            created_at=at,
            updated_at=at,
        )
        for name, value in fields.items():
            setattr(run, name, value)
        session.add(run)
        session.flush()
        session.add_all(_target(run, number, one, at) for number, one in enumerate(targets))
        return run.id


def _target(run: RuleRunRow, number: int, status: str, at: datetime) -> RuleTargetRow:
    return RuleTargetRow(
        tenant_id=TENANT,
        project_id=run.project_id,
        rule_run_id=run.id,
        shop=run.shop,
        product_id="p1",
        variant_id=f"v{number}",
        currency="EUR",
        before_json={"unit_amount": 1000, "currency": "EUR", "compare_at": None},
        after_json={"unit_amount": 900, "currency": "EUR", "compare_at": None},
        writes_compare_at=False,
        warnings=[],
        status=status,
        applied_at=at if status in {"APPLIED", "ROLLED_BACK"} else None,
        error_type="server" if status == "FAILED" else None,
    )


def run_row(database: Database, run_id: int) -> RuleRunRow:
    with database.reading() as session:
        return session.get_one(RuleRunRow, run_id)


def run_rows(database: Database) -> list[RuleRunRow]:
    with database.reading() as session:
        return list(session.scalars(select(RuleRunRow).order_by(RuleRunRow.id)))


def rule_row(database: Database, rule_id: int) -> RuleRow:
    with database.reading() as session:
        return session.get_one(RuleRow, rule_id)


def change_run(database: Database, run_id: int, **values: object) -> None:
    with database.transaction() as session:
        session.execute(update(RuleRunRow).where(RuleRunRow.id == run_id).values(**values))


def forget_all(database: Database) -> None:
    with database.transaction() as session:
        for table in (RuleTargetRow, RuleRunRow, RuleVersionRow, RuleRow, RunRequestRow, OutboxRow):
            session.execute(delete(table))


def wished(database: Database, run_id: int) -> list[tuple[str, bool]]:
    """Every target's state, and whether the worker is to look at it."""
    query = select(RuleTargetRow.status, RuleTargetRow.is_wished).where(
        RuleTargetRow.rule_run_id == run_id
    )
    with database.reading() as session:
        return [
            (status, request)
            for status, request in session.execute(query.order_by(RuleTargetRow.id)).tuples()
        ]


def filed(database: Database) -> list[tuple[str, str, dict[str, object]]]:
    with database.reading() as session:
        rows = session.scalars(select(RunRequestRow).order_by(RunRequestRow.request_key))
        return [(row.request_key, row.job, dict(row.config)) for row in rows]


def events(database: Database, name: str) -> list[Event]:
    with database.reading() as session:
        rows = session.scalars(
            select(OutboxRow).where(OutboxRow.event_name == name).order_by(OutboxRow.event_key)
        )
        return [event_in(row) for row in rows]


def look_many(url: str, now: str, times: int) -> tuple[int, int]:
    """How many runs this process has started, and how many it had rolled back."""
    database, clock = Database(url), StandingClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    try:
        looks = [look(database, clock) for _ in range(times)]
        return sum(len(one.started) for one in looks), sum(len(one.ended) for one in looks)
    finally:
        database.dispose()


def look_or_ask(url: str, now: str, rule_id: int) -> int:
    """Runs that this process has made: of the rule by hand, or of whatever is due."""
    database, clock = Database(url), StandingClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    try:
        if not rule_id:
            return len(look(database, clock).started)
        request_rule_run(
            rule_id,
            database=database,
            clock=clock,
            shop=SHOP,
            actor="cli:me",
            trigger=RuleTrigger.CLI,
        )
    except ConflictError:
        return 0
    else:
        return 1
    finally:
        database.dispose()
