"""Creates and reads rows of pricing for tests. Subprocesses can import this module."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update

from automation_pipeline.core.alerts import AlertReceiver, AlertSeverity
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
    PricingAlertRow,
    RuleCheckRow,
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
    RuleVersionRow,
    ShopRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow, event_in
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.fakes.clock import FakeClock

SHOP = "shop.example"
GIVEN: dict[str, object] = {
    "name": "Summer sale",
    "selector": {"tag": "summer"},
    "transform": {"op": "percent", "value": -10},
}


def make_rule(
    database: Database, clock: Clock, *, project_id: str = "default", **fields: object
) -> PricingRule:
    return create_rule(
        {**GIVEN, **fields}, project_id=project_id, database=database, clock=clock, actor="user:12"
    )


def requested_run(
    rule: PricingRule, database: Database, clock: Clock, *, force: bool = False
) -> int:
    return request_rule_run(
        rule.id,
        database=database,
        clock=clock,
        shop=SHOP,
        actor="user:12",
        trigger=RuleTrigger.API,
        force=force,
    )


def start_due(database: Database, clock: Clock) -> DuePriceRules:
    return start_due_rules(database=database, clock=clock, shop=SHOP)


def make_run(
    database: Database,
    rule: PricingRule,
    status: str,
    at: datetime,
    targets: Sequence[str] = (),
    **fields: Any,
) -> int:
    """A run in this state, with one target per status."""
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


def delete_all(database: Database) -> None:
    with database.transaction() as session:
        for table in (RuleTargetRow, RuleRunRow, RuleVersionRow, RuleRow, RunRequestRow, OutboxRow):
            session.execute(delete(table))


def marked_targets(database: Database, run_id: int) -> list[tuple[str, bool]]:
    """The state of each target, and whether an action on it was requested."""
    query = select(RuleTargetRow.status, RuleTargetRow.is_wished).where(
        RuleTargetRow.rule_run_id == run_id
    )
    with database.reading() as session:
        return [
            (status, request)
            for status, request in session.execute(query.order_by(RuleTargetRow.id)).tuples()
        ]


def stored_requests(database: Database) -> list[tuple[str, str, dict[str, object]]]:
    with database.reading() as session:
        rows = session.scalars(select(RunRequestRow).order_by(RunRequestRow.request_key))
        return [(row.request_key, row.job, dict(row.config)) for row in rows]


def events(database: Database, name: str) -> list[Event]:
    with database.reading() as session:
        rows = session.scalars(
            select(OutboxRow).where(OutboxRow.event_name == name).order_by(OutboxRow.event_key)
        )
        return [event_in(row) for row in rows]


def start_due_many(url: str, now: str, times: int) -> tuple[int, int]:
    """Return how many runs this process started and how many promotions it ended."""
    database, clock = Database(url), FakeClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    try:
        reports = [start_due(database, clock) for _ in range(times)]
        return sum(len(one.started) for one in reports), sum(len(one.ended) for one in reports)
    finally:
        database.dispose()


def start_due_or_request(url: str, now: str, rule_id: int) -> int:
    """Request a run of the rule, or start due rules if `rule_id` is 0; return the number of created runs."""
    database, clock = Database(url), FakeClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    try:
        if not rule_id:
            return len(start_due(database, clock).started)
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


EVERY_ALERT = dict.fromkeys(AlertSeverity, AlertReceiver("https://hooks.example.com/prices"))


def make_ended_run(
    database: Database,
    clock: Clock,
    applied: int,
    failed: int = 0,
    *,
    ended: timedelta = timedelta(minutes=30),
    project_id: str = "default",
    **fields: Any,
) -> int:
    """Insert a run that ended `ended` ago, with a new rule. Its targets were tried a minute before its end."""
    at = clock.now() - ended
    status = "APPLIED" if not failed else "PARTIAL" if applied else "FAILED"
    rule = make_rule(database, clock, project_id=project_id)
    targets = ["APPLIED"] * applied + ["FAILED"] * failed
    started = {"queued_at": at - timedelta(minutes=3), "started_at": at - timedelta(minutes=2)}
    run_id = make_run(
        database, rule, fields.pop("status", status), at, targets, **{**started, **fields}
    )
    change_targets(database, run_id, last_attempt=at - timedelta(minutes=1))
    return run_id


def change_targets(
    database: Database, run_id: int, *, first: int | None = None, **values: Any
) -> None:
    """Change all targets of the run, or only the first failed ones."""
    chosen = select(RuleTargetRow.id).where(RuleTargetRow.rule_run_id == run_id)
    if first is not None:
        chosen = (
            chosen.where(RuleTargetRow.status == "FAILED").order_by(RuleTargetRow.id).limit(first)
        )
    with database.transaction() as session:
        session.execute(update(RuleTargetRow).where(RuleTargetRow.id.in_(chosen)).values(**values))


def make_shop(
    database: Database, *refused_seconds_ago: float, shop: str = SHOP, circuit: str = "closed"
) -> None:
    """Insert a shop that throttled calls the given numbers of seconds ago."""
    with database.transaction() as session:
        now = database_time(session)
        session.add(
            ShopRow(
                shop=shop, circuit=circuit, available=1, maximum=1, restore_rate=1, measured_at=now,
                refusals=[now.timestamp() - seconds for seconds in refused_seconds_ago],
            )
        )  # fmt: skip


def make_check(
    database: Database,
    run_id: int,
    name: str,
    at: datetime,
    worst: str | None = None,
    mismatches: int = 0,
    **counts: int,
) -> None:
    """Insert a check; it read one price unless `counts` override this."""
    found = {"total_checked": 1, "mismatches": mismatches, "unverified": 0} | counts
    with database.transaction() as session:
        session.add(
            RuleCheckRow(
                rule_run_id=run_id, name=name, due_at=at, checked_at=at, worst=worst, **found
            )
        )


def alert_rows(database: Database) -> list[PricingAlertRow]:
    with database.reading() as session:
        return list(session.scalars(select(PricingAlertRow).order_by(PricingAlertRow.id)))
