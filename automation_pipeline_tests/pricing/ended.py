"""Runs that have ended, as rows: what alerts, gauges and a day's asset are made of."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from automation_pipeline.core.alerts import AlertReceiver, AlertSeverity
from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.tables import (
    PricingAlertRow,
    RuleCheckRow,
    RuleTargetRow,
    ShopRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.pricing.kept import SHOP, a_rule, a_run

EVERY_ALERT = dict.fromkeys(AlertSeverity, AlertReceiver("https://hooks.example.com/prices"))


def an_ended_run(
    database: Database,
    clock: Clock,
    applied: int,
    failed: int = 0,
    *,
    ended: timedelta = timedelta(minutes=30),
    project_id: str = "default",
    **fields: Any,
) -> int:
    """So long ago, of a rule of its own; its targets were tried a minute before."""
    at = clock.now() - ended
    status = "APPLIED" if not failed else "PARTIAL" if applied else "FAILED"
    rule = a_rule(database, clock, project_id=project_id)
    targets = ["APPLIED"] * applied + ["FAILED"] * failed
    started = {"queued_at": at - timedelta(minutes=3), "started_at": at - timedelta(minutes=2)}
    run_id = a_run(
        database, rule, fields.pop("status", status), at, targets, **{**started, **fields}
    )
    change_targets(database, run_id, last_attempt=at - timedelta(minutes=1))
    return run_id


def change_targets(
    database: Database, run_id: int, *, first: int | None = None, **values: Any
) -> None:
    """All of a run's, or the first few of those that failed."""
    chosen = select(RuleTargetRow.id).where(RuleTargetRow.rule_run_id == run_id)
    if first is not None:
        chosen = (
            chosen.where(RuleTargetRow.status == "FAILED").order_by(RuleTargetRow.id).limit(first)
        )
    with database.transaction() as session:
        session.execute(update(RuleTargetRow).where(RuleTargetRow.id.in_(chosen)).values(**values))


def a_shop(
    database: Database, *refused_seconds_ago: float, shop: str = SHOP, circuit: str = "closed"
) -> None:
    """It refused calls so long ago by the database's clock."""
    with database.transaction() as session:
        now = database_time(session)
        session.add(
            ShopRow(
                shop=shop, circuit=circuit, available=1, maximum=1, restore_rate=1, measured_at=now,
                refusals=[now.timestamp() - seconds for seconds in refused_seconds_ago],
            )
        )  # fmt: skip


def a_check(
    database: Database,
    run_id: int,
    name: str,
    at: datetime,
    worst: str | None = None,
    mismatches: int = 0,
    **counts: int,
) -> None:
    """It read one price, unless `counts` say otherwise."""
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
