"""Runs as they begin, all of them in PREVIEW, and the asking for a worker that every run goes through."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import update
from sqlalchemy.orm import Session

from automation_pipeline.core.correlation import correlation_id
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.domain.keys import request_key
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.rule_run import RuleTrigger, Wish
from automation_pipeline.pricing.domain.states import FIRST_RUN_STATE
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.bulk import among, insert_into
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "rule_run"


class RuleToRun(Protocol):
    """A `PricingRule`, or as much of one as a run keeps."""

    @property
    def id(self) -> int: ...

    @property
    def project_id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def version_hash(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """`force`: the rule's rest after its last run is not waited for."""

    rule: RuleToRun
    shop: str
    trigger: RuleTrigger
    actor: str
    wish: Wish | None = None
    scheduled_for: datetime | None = None
    parent_run_id: int | None = None
    force: bool = False


def add_run(  # noqa: PLR0913  what a run says of itself, by name
    session: Session,
    rule: RuleToRun,
    *,
    shop: str,
    trigger: RuleTrigger,
    actor: str,
    now: datetime,
    wish: Wish | None = None,
    scheduled_for: datetime | None = None,
    parent_run_id: int | None = None,
    force: bool = False,
) -> int:
    """Of the rule as it is now. Nobody is asked to work on it yet: `file_run_request` does."""
    run = NewRun(
        rule=rule,
        shop=shop,
        trigger=trigger,
        actor=actor,
        wish=wish,
        scheduled_for=scheduled_for,
        parent_run_id=parent_run_id,
        force=force,
    )
    return add_runs(session, [run], now)[rule.id]


def add_runs(session: Session, runs: Sequence[NewRun], now: datetime) -> dict[int, int]:
    """By rule, each of which is there once. None for a rule that was run before for the same time of its schedule."""
    if not runs:
        return {}
    insert = insert_into(session, RuleRunRow).on_conflict_do_nothing(index_elements=["rule_id", "scheduled_for"])
    table = RuleRunRow.__table__
    added = session.execute(insert.returning(table.c.rule_id, table.c.id), [_columns(run, now) for run in runs])
    return dict(iter(added.tuples()))


def file_run_request(session: Session, run_id: int, now: datetime) -> str:
    """Ask for a worker, whoever was asked before; the key of the request."""
    keys = file_run_requests(session, [run_id], now)
    if run_id not in keys:
        raise NotFoundError(f"Rule run {run_id} does not exist.")
    return keys[run_id]


def file_run_requests(session: Session, run_ids: Collection[int], now: datetime) -> dict[int, str]:
    """The keys by run. A number is never used twice, so that Dagster does not take the request for an old one."""
    if not run_ids:
        return {}
    raised = session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, run_ids))
        .values(requests=RuleRunRow.requests + 1)
        .returning(RuleRunRow.id, RuleRunRow.rule_id, RuleRunRow.requests)
        .execution_options(synchronize_session=False)
    ).tuples()
    wishes = {run_id: _wish(run_id, rule_id, number) for run_id, rule_id, number in raised}
    file_requests(session, [wishes[run_id] for run_id in run_ids if run_id in wishes], now)
    return {run_id: wish.key for run_id, wish in wishes.items()}


def _wish(run_id: int, rule_id: int, number: int) -> RunWish:
    tags = {"pricing/run_id": str(run_id), "pricing/rule_id": str(rule_id)}
    return RunWish(request_key(str(run_id), number), JOB, {"run_id": run_id}, tags)


def _columns(run: NewRun, now: datetime) -> dict[str, object]:
    source: dict[str, object] = {
        "actor": run.actor,
        "correlationId": correlation_id(),
        "source": run.trigger,
        "force": run.force,
    }
    return {
        "tenant_id": TENANT,
        "project_id": run.rule.project_id,
        "rule_id": run.rule.id,
        "rule_version": run.rule.version,
        "rule_version_hash": run.rule.version_hash,
        "shop": run.shop,
        "status": FIRST_RUN_STATE,
        "trigger": run.trigger,
        "wish": run.wish,
        "parent_run_id": run.parent_run_id,
        "scheduled_for": run.scheduled_for,
        "created_by": run.actor,
        "wished_by": run.actor if run.wish else None,
        "metadata": source,
        "created_at": now,
        "updated_at": now,
    }
