"""Queries about runs: claims, state changes, new runs, and runs as they are shown."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy import cast as sqlalchemy_cast
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import (
    ConflictError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.pricing.events import request_key
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    BLOCKED,
    FIRST_RUN_STATE,
    RULE_RUN,
    RULE_TARGET,
    LoggedMove,
    PricingRunState,
    RuleRun,
    RuleRunFilter,
    RuleTarget,
    RuleTrigger,
    RunAction,
    RunResult,
    RunTimes,
    SkippedVariant,
    TargetCounts,
    TargetResult,
    TargetState,
    run_result,
    success_rate,
)
from automation_pipeline.pricing.models.shop import FailureKind, PriceDocument
from automation_pipeline.pricing.models.transforms import Skip
from automation_pipeline.pricing.tables import RuleRow, RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.storage.claims import LostClaimError, RowClaims
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import among, insert_into
from automation_pipeline.storage.transitions import Transition, TransitionRow, record_transitions

RUN_CLAIMS = RowClaims(
    RuleRunRow,
    RuleRunRow.id,
    owner=RuleRunRow.lease_owner,
    token=RuleRunRow.lease_token,
    until=RuleRunRow.lease_until,
)


class LostRunClaimError(PermanentError):
    """Somebody else works on the run: whatever this worker did is not wanted any more."""


class PricingRunBusyError(TransientError):
    """Somebody else works on the run, or did a moment ago."""


@dataclass(frozen=True)
class RunClaim:
    run_id: int
    token: int


def claim_run(session: Session, run_id: int, owner: str, seconds: float) -> RunClaim | None:
    """None: somebody else has it."""
    taken = RUN_CLAIMS.take(session, [RuleRunRow.id == run_id], owner, seconds)
    return RunClaim(run_id, taken[0].token) if taken else None


def extend_claim(session: Session, hold: RunClaim, seconds: float) -> None:
    row = claimed_run(session, hold)
    row.lease_until = database_now(seconds)  # pyright: ignore[reportAttributeAccessIssue]  an expression is taken too


def release_claim(session: Session, hold: RunClaim) -> None:
    """Nothing, where it was lost."""
    RUN_CLAIMS.release(session, [(hold.run_id, hold.token)])


def claimed_run(session: Session, hold: RunClaim) -> RuleRunRow:
    """The run, nobody else's until the transaction ends. LostHoldError: it is not ours any more."""
    try:
        return RUN_CLAIMS.require(session, hold.run_id, hold.token)
    except LostClaimError:
        locked_run(session, hold.run_id)  # NotFoundError, where it does not exist
        raise LostRunClaimError(
            f"Rule run {hold.run_id} is worked on by another process."
        ) from None


def locked_run(session: Session, run_id: int) -> RuleRunRow:
    row = session.scalar(select(RuleRunRow).where(RuleRunRow.id == run_id).with_for_update())
    if row is None:
        raise no_such_run(run_id)
    return row


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Rule run {run_id} not found")


def seconds_until_free(session: Session, run_id: int) -> float:
    until = session.scalar(select(RuleRunRow.lease_until).where(RuleRunRow.id == run_id))
    return 0.0 if until is None else max((until - database_time(session)).total_seconds(), 0.0)


# Their prices stand in the shop.
LIVE_RUN_STATES = frozenset({PricingRunState.APPLIED, PricingRunState.PARTIAL})


class RuleBusyError(ConflictError):
    """Another run of the rule comes first."""


@dataclass(frozen=True)
class OpenRun:
    """`status` is PREVIEW for one that waits to be planned and queued, and an ended one for what is
    to be retried."""

    id: int
    status: PricingRunState


def open_run_of(session: Session, rule_id: int) -> OpenRun | None:
    return open_runs_of(session, [rule_id]).get(rule_id)


def open_runs_of(session: Session, rule_ids: Collection[int]) -> dict[int, OpenRun]:
    """By rule, its run that is queued or applied, or that is asked to be (again) and not cancelled;
    the newest one."""
    query = (
        select(RuleRunRow.rule_id, RuleRunRow.id, RuleRunRow.status)
        .where(among(session, RuleRunRow.rule_id, rule_ids), or_(_is_active(), _is_asked_for()))
        .order_by(RuleRunRow.id)
    )
    rows = session.execute(query).tuples()
    return {rule_id: OpenRun(run_id, PricingRunState(status)) for rule_id, run_id, status in rows}


def active_run_of(session: Session, rule_id: int) -> int | None:
    """The run that is queued or being applied: there is one at most."""
    return session.scalar(select(RuleRunRow.id).where(RuleRunRow.rule_id == rule_id, _is_active()))


def blocking_reason(session: Session, rule_id: int) -> str | None:
    """Why no other run of the rule may be queued: one is queued or being applied, or waits to be
    tried again."""
    if active_run_of(session, rule_id) is not None:
        return f"Another run of rule {rule_id} is queued or being applied."
    query = select(func.min(RuleRunRow.id)).where(
        RuleRunRow.rule_id == rule_id, RuleRunRow.wish == RunAction.RETRY
    )
    retried = session.scalar(query)
    if retried is None:
        return None
    return f"Run {retried} of pricing rule {rule_id} waits to be tried again: wait for its end, or cancel it."


def last_applied_at(session: Session, rule_id: int) -> datetime | None:
    """When the last run ended whose prices stand."""
    applied = RuleRunRow.status.in_(sorted(LIVE_RUN_STATES))
    return session.scalar(
        select(func.max(RuleRunRow.finished_at)).where(RuleRunRow.rule_id == rule_id, applied)
    )


def _is_active() -> ColumnElement[bool]:
    return RuleRunRow.status.in_(sorted(ACTIVE_RUN_STATES))


def _is_asked_for() -> ColumnElement[bool]:
    first = and_(
        RuleRunRow.status == PricingRunState.PREVIEW,
        RuleRunRow.wish == RunAction.APPLY,
        RuleRunRow.cancel_requested_at.is_(None),
    )
    return or_(first, RuleRunRow.wish == RunAction.RETRY)


_TARGETS = cast("Table", RuleTargetRow.__table__)


def move_run(
    session: Session,
    row: RuleRunRow,
    to: PricingRunState,
    actor: str,
    now: datetime,
    reason: str | None = None,
) -> None:
    """Of a run that is locked. RuleBusyError: another run of its rule is queued or being
    applied."""
    frm, rule_id = PricingRunState(row.status), row.rule_id
    row.status = RULE_RUN.move(frm, to)
    row.updated_at = now
    record_transitions(
        session, [Transition(RULE_RUN.name, str(row.id), frm, to, actor, now, reason)]
    )
    try:
        session.flush()
    except IntegrityError:
        raise RuleBusyError(f"Another run of rule {rule_id} is queued or being applied.") from None


def move_targets(
    session: Session,
    frm: TargetState,
    changes: Mapping[int, Mapping[str, object]],
    actor: str,
    now: datetime,
) -> None:
    """By target the columns that change, `status` among them; all name the same columns.
    LostHoldError, and nothing is kept, if one of them is not in the state expected."""
    if not changes:
        return
    for change in changes.values():
        RULE_TARGET.move(frm, TargetState(str(change["status"])))
    columns = next(iter(changes.values()))
    statement = (
        update(_TARGETS)
        .where(_TARGETS.c.id == bindparam("its_id"), _TARGETS.c.status == bindparam("its_status"))
        .values({name: bindparam(name) for name in columns})
    )
    rows = [{"its_id": id_, "its_status": frm, **change} for id_, change in changes.items()]
    if session.connection().execute(statement, rows).rowcount != len(rows):
        raise LostRunClaimError(
            f"Targets that were {frm} are not any more: somebody else moved them."
        )
    log_target_moves(session, frm, changes, actor, now)


def log_target_moves(
    session: Session,
    frm: TargetState,
    changes: Mapping[int, Mapping[str, object]],
    actor: str,
    now: datetime,
) -> None:
    said = {"machine": RULE_TARGET.name, "from_state": frm, "actor": actor, "at": now}
    moves = [
        {
            **said,
            "entity_id": str(id_),
            "to_state": change["status"],
            "reason": _error_message(change),
        }
        for id_, change in changes.items()
    ]
    if moves:
        session.execute(insert(TransitionRow), moves)


def give_up_queued(
    session: Session,
    targets: Sequence[int],
    failure: Mapping[str, object],
    actor: str,
    now: datetime,
) -> None:
    """Targets that are given up without a call go through APPLYING all the same."""
    move_targets(
        session,
        TargetState.QUEUED,
        {id_: {"status": TargetState.APPLYING} for id_ in targets},
        actor,
        now,
    )
    failed = {"status": TargetState.FAILED, **failure}
    move_targets(session, TargetState.APPLYING, dict.fromkeys(targets, failed), actor, now)


def _error_message(change: Mapping[str, object]) -> str | None:
    said = change.get("error_message")
    return None if said is None else str(said)


RUN_JOB = "rule_run"


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
    wish: RunAction | None = None
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
    wish: RunAction | None = None,
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
    """By rule, each of which is there once. None for a rule that was run before for the same time
    of its schedule."""
    if not runs:
        return {}
    insert = insert_into(session, RuleRunRow).on_conflict_do_nothing(
        index_elements=["rule_id", "scheduled_for"]
    )
    table = RuleRunRow.__table__
    added = session.execute(
        insert.returning(table.c.rule_id, table.c.id), [_columns(run, now) for run in runs]
    )
    return dict(iter(added.tuples()))


def file_run_request(session: Session, run_id: int, now: datetime) -> str:
    """Ask for a worker, whoever was asked before; the key of the request."""
    keys = file_run_requests(session, [run_id], now)
    if run_id not in keys:
        raise NotFoundError(f"Rule run {run_id} not found")
    return keys[run_id]


def file_run_requests(session: Session, run_ids: Collection[int], now: datetime) -> dict[int, str]:
    """The keys by run. A number is never used twice, so that Dagster does not take the request for
    an old one."""
    if not run_ids:
        return {}
    raised = session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, run_ids))
        .values(requests=RuleRunRow.requests + 1)
        .returning(RuleRunRow.id, RuleRunRow.rule_id, RuleRunRow.requests)
        .execution_options(synchronize_session=False)
    ).tuples()
    wishes = {run_id: _run_request(run_id, rule_id, number) for run_id, rule_id, number in raised}
    file_requests(session, [wishes[run_id] for run_id in run_ids if run_id in wishes], now)
    return {run_id: wish.key for run_id, wish in wishes.items()}


def _run_request(run_id: int, rule_id: int, number: int) -> NewRunRequest:
    tags = {"pricing/run_id": str(run_id), "pricing/rule_id": str(rule_id)}
    return NewRunRequest(request_key(str(run_id), number), RUN_JOB, {"run_id": run_id}, tags)


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


BLOCKED_WHY = "The project's guardrails do not allow its new price."

_OF_ROW = RuleRun.model_fields.keys() - {"rule_name", "targets", "success_rate", "explain"}
_OF_TARGET = RuleTarget.model_fields.keys() - {
    "before",
    "after",
    "trace",
    "warnings",
    "observed_price",
}
_OF_SKIPPED = SkippedVariant.model_fields.keys() - {"why", "checks"}


def run_value(row: RuleRunRow, rule_name: str, counts: TargetCounts) -> RuleRun:
    return RuleRun.model_validate(
        {name: getattr(row, name) for name in _OF_ROW}
        | {
            "rule_name": rule_name,
            "targets": counts,
            "success_rate": rate_of(counts),
            "explain": row.explain_json,
        }
    )


def rate_of(counts: TargetCounts) -> float | None:
    """A target that was rolled back was applied: a rollback does not make the run less
    successful."""
    rate = success_rate(counts.applied + counts.rolled_back, counts.failed - counts.cancelled)
    return None if rate is None else round(float(rate), 4)


def counts_value(counted: Iterable[tuple[str, bool, int]]) -> TargetCounts:
    """Of status, whether it was cancelled, and how many."""
    counts = dict.fromkeys(TargetCounts.model_fields, 0)
    for status, is_cancelled, count in counted:
        counts[status.lower()] += count
        counts["cancelled"] += count if is_cancelled else 0
    return TargetCounts(**counts)


def target_value(row: RuleTargetRow) -> RuleTarget:
    observed = row.observed_price
    return RuleTarget.model_validate(
        {name: getattr(row, name) for name in _OF_TARGET}
        | {
            "before": PriceDocument.model_validate(row.before_json),
            "after": PriceDocument.model_validate(row.after_json),
            "trace": row.trace_json,
            "warnings": tuple(row.warnings),
            "observed_price": None if observed is None else PriceDocument.model_validate(observed),
        }
    )


def skipped_value(row: SkippedVariantRow) -> SkippedVariant:
    why = BLOCKED_WHY if row.reason == BLOCKED else Skip(row.reason).why
    return SkippedVariant.model_validate(
        {name: getattr(row, name) for name in _OF_SKIPPED}
        | {"why": why, "checks": tuple(row.checks or ())}
    )


_FRESH = {"populate_existing": True}


def get_run(session: Session, run_id: int) -> RuleRun:
    found = session.execute(_runs().where(RuleRunRow.id == run_id)).tuples().one_or_none()
    if found is None:
        raise no_such_run(run_id)
    return run_value(*found, _target_counts(session, [run_id]).get(run_id, TargetCounts()))


def runs_by_id(session: Session, run_ids: Collection[int]) -> dict[int, RuleRun]:
    """Those of them that exist."""
    rows = session.execute(_runs().where(among(session, RuleRunRow.id, run_ids))).tuples().all()
    counts = _target_counts(session, run_ids)
    return {row.id: run_value(row, name, counts.get(row.id, TargetCounts())) for row, name in rows}


def list_runs(session: Session, chosen: RuleRunFilter, limit: int, offset: int) -> list[RuleRun]:
    """Newest first."""
    query = (
        _runs()
        .where(*_run_conditions(chosen))
        .order_by(RuleRunRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    rows = session.execute(query).tuples().all()
    counts = _target_counts(session, [row.id for row, _ in rows])
    return [run_value(row, name, counts.get(row.id, TargetCounts())) for row, name in rows]


def count_runs(session: Session, chosen: RuleRunFilter) -> int:
    return session.scalar(select(func.count(RuleRunRow.id)).where(*_run_conditions(chosen))) or 0


def targets_of(
    session: Session,
    run_id: int,
    *,
    status: TargetState | None = None,
    limit: int,
    after_id: int = 0,
) -> list[RuleTarget]:
    """In their order, those of one product together; `after_id` is the last one of the page
    before."""
    _check_exists(session, run_id)
    query = select(RuleTargetRow).where(
        RuleTargetRow.rule_run_id == run_id, RuleTargetRow.id > after_id
    )
    if status is not None:
        query = query.where(RuleTargetRow.status == status)
    rows = session.scalars(
        query.order_by(RuleTargetRow.id).limit(limit).execution_options(**_FRESH)
    )
    return [target_value(row) for row in rows]


def skipped_of(
    session: Session, run_id: int, *, reason: str | None = None, limit: int, offset: int = 0
) -> list[SkippedVariant]:
    """Variants that the rule left alone or the guardrails blocked. Those that need no change are
    counted only."""
    _check_exists(session, run_id)
    query = select(SkippedVariantRow).where(*_skips(run_id, reason))
    return [
        skipped_value(row)
        for row in session.scalars(query.order_by(SkippedVariantRow.id).limit(limit).offset(offset))
    ]


def count_skipped(session: Session, run_id: int, *, reason: str | None = None) -> int:
    return (
        session.scalar(select(func.count(SkippedVariantRow.id)).where(*_skips(run_id, reason))) or 0
    )


def result_of(session: Session, run_id: int) -> RunResult:
    """Of the targets that are applied or have failed; those that were taken back are in neither."""
    run = get_run(session, run_id)
    ended = RuleTargetRow.status.in_((TargetState.APPLIED, TargetState.FAILED))
    query = (
        select(RuleTargetRow.id, RuleTargetRow.status, RuleTargetRow.variant_id)
        .add_columns(
            RuleTargetRow.after_json, RuleTargetRow.error_message, RuleTargetRow.duration_ms
        )
        .where(RuleTargetRow.rule_run_id == run_id, ended)
        .order_by(RuleTargetRow.id)
    )
    results = [
        TargetResult(
            target_id=str(id_),
            success=status == TargetState.APPLIED,
            external_id=variant_id,
            applied_price=after["unit_amount"] if status == TargetState.APPLIED else None,
            error=error if status == TargetState.FAILED else None,
            duration=duration or 0,
        )
        for id_, status, variant_id, after, error, duration in session.execute(query)
    ]
    told = run_result(
        str(run_id), run.status, RunTimes(run.queued_at, run.started_at, run.finished_at), results
    )
    return told.model_copy(update={"success_rate": rate_of(run.targets)})


def transitions_of(
    session: Session, run_id: int, limit: int, after_id: int = 0
) -> list[LoggedMove]:
    """The moves of the run and of its targets, in the order in which they were made."""
    _check_exists(session, run_id)
    targets = select(sqlalchemy_cast(RuleTargetRow.id, Text)).where(
        RuleTargetRow.rule_run_id == run_id
    )
    of_run = (TransitionRow.machine == RULE_RUN.name) & (TransitionRow.entity_id == str(run_id))
    of_target = (TransitionRow.machine == RULE_TARGET.name) & TransitionRow.entity_id.in_(targets)
    query = select(TransitionRow).where(or_(of_run, of_target), TransitionRow.id > after_id)
    rows = session.scalars(query.order_by(TransitionRow.id).limit(limit))
    return [
        LoggedMove.model_validate({name: getattr(row, name) for name in LoggedMove.model_fields})
        for row in rows
    ]


def _runs() -> Select[tuple[RuleRunRow, str]]:
    return (
        select(RuleRunRow, RuleRow.name)
        .join(RuleRow, RuleRow.id == RuleRunRow.rule_id)
        .execution_options(**_FRESH)
    )


def _run_conditions(chosen: RuleRunFilter) -> list[ColumnElement[bool]]:
    conditions = [RuleRunRow.tenant_id == TENANT]
    if chosen.project_id is not None:
        conditions.append(RuleRunRow.project_id == chosen.project_id)
    if chosen.rule_id is not None:
        conditions.append(RuleRunRow.rule_id == chosen.rule_id)
    if chosen.status is not None:
        conditions.append(RuleRunRow.status == chosen.status)
    if chosen.trigger is not None:
        conditions.append(RuleRunRow.trigger == chosen.trigger)
    return conditions


def _target_counts(session: Session, run_ids: Collection[int]) -> dict[int, TargetCounts]:
    is_cancelled = func.coalesce(RuleTargetRow.error_type, "") == FailureKind.CANCELLED
    failed_so = (RuleTargetRow.status == TargetState.FAILED) & is_cancelled
    its = (RuleTargetRow.rule_run_id, RuleTargetRow.status, failed_so)
    query = (
        select(*its, func.count())
        .where(among(session, RuleTargetRow.rule_run_id, run_ids))
        .group_by(*its)
    )
    counted: dict[int, list[tuple[str, bool, int]]] = {}
    for run_id, status, cancelled, count in session.execute(query).tuples():
        counted.setdefault(run_id, []).append((status, bool(cancelled), count))
    return {run_id: counts_value(rows) for run_id, rows in counted.items()}


def _skips(run_id: int, reason: str | None) -> list[ColumnElement[bool]]:
    its: list[ColumnElement[bool]] = [SkippedVariantRow.rule_run_id == run_id]
    return its if reason is None else [*its, SkippedVariantRow.reason == reason]


def _check_exists(session: Session, run_id: int) -> None:
    if session.scalar(select(RuleRunRow.id).where(RuleRunRow.id == run_id)) is None:
        raise no_such_run(run_id)
