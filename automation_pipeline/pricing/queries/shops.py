"""Queries of a shop: its bucket, its circuit, its pause."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.models.shop import (
    BucketShown,
    BucketStatus,
    CircuitShown,
    CircuitState,
    ShopShown,
)
from automation_pipeline.pricing.rules import pacing
from automation_pipeline.pricing.rules.pacing import (
    CallKind,
    CallOutcome,
    Circuit,
    LeakyBucket,
    NotBefore,
    Streak,
    after_answer,
    request_permit,
    without_probe,
)
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.statements import database_time, insert_into

MAX_REFUSALS = 100


@dataclass(frozen=True)
class CallTurn:
    """The call may start that many seconds after `at`; 0: now. `is_resting`: the shop must not be called."""

    at: datetime
    seconds: float
    is_resting: bool
    circuit: Circuit
    is_probe: bool = False


def reserve_call(session: Session, shop: str, cost: float, *, is_reserved: bool) -> CallTurn:
    """Reserve the points, unless they are already reserved, and return when the call may start."""
    row, now = _locked_row(session, shop), database_time(session)
    wait = 0.0
    if not is_reserved:
        left, wait = pacing.reserve_points(_bucket(row), cost, now)
        _save_bucket(row, left)
    permission = request_permit(_circuit(row), now)
    if isinstance(permission, NotBefore):
        rest = (permission.at - now).total_seconds()
        return CallTurn(now, max(wait, rest), is_resting=True, circuit=_circuit(row))
    if wait <= 0:
        _save_circuit(row, permission.circuit)
    is_probe = permission.is_probe and wait <= 0
    return CallTurn(now, wait, is_resting=False, circuit=permission.circuit, is_probe=is_probe)


def refund_call(session: Session, shop: str, cost: float, turn: CallTurn | None = None) -> None:
    """Refund the points of a call that is not made. With its `turn`, the next call takes over its probe."""
    row, now = _locked_row(session, shop), database_time(session)
    _save_bucket(row, pacing.refund_points(_bucket(row), cost, now))
    if turn is not None and turn.is_probe:
        _save_circuit(row, without_probe(_circuit(row), turn.circuit, now))


@dataclass(frozen=True)
class CallRecord:
    """`answer` is None for a cancelled call; `since` is its start. A call that was not sent has no cost."""

    answer: CallOutcome | None
    kind: CallKind
    cost: float
    since: datetime
    bucket: BucketStatus | None = None
    retry_after_seconds: float | None = None
    was_sent: bool = True


def record_call(session: Session, shop: str, call: CallRecord) -> tuple[Circuit, Circuit]:
    """Record the call, and return the circuit before and after the answer."""
    row, now = _locked_row(session, shop), database_time(session)
    before, bucket = _circuit(row), _bucket(row)
    if call.was_sent:
        bucket = pacing.sync_bucket(bucket, call.cost, call.bucket, since=call.since, now=now)
    else:
        bucket = pacing.refund_points(bucket, call.cost, now)
    _save_bucket(row, bucket)
    if call.answer is None:
        return before, before
    seconds = call.retry_after_seconds
    retry_after = None if seconds is None else timedelta(seconds=seconds)
    after = after_answer(before, call.kind, call.answer, now, retry_after)
    _save_circuit(row, after)
    if call.answer is CallOutcome.THROTTLED:
        row.refusals = [*row.refusals, now.timestamp()][-MAX_REFUSALS:]
    return before, after


def shop_status(session: Session, shop: str) -> ShopShown:
    """A shop that was never called has no bucket."""
    row = session.get(ShopRow, shop)
    return ShopShown(shop=shop) if row is None else _status(row)


def set_pause(session: Session, shop: str, *, by: str | None, reason: str | None) -> ShopShown:
    """Without `by`, end the pause."""
    row = _locked_row(session, shop)
    row.paused_at = None if by is None else row.paused_at or database_time(session)
    row.paused_by, row.pause_reason = by, reason
    return _status(row)


def close_circuit(session: Session, shop: str) -> None:
    _save_circuit(_locked_row(session, shop), Circuit())


def is_shop_paused(session: Session, shop: str) -> bool:
    return session.scalar(select(ShopRow.paused_at).where(ShopRow.shop == shop)) is not None


def _locked_row(session: Session, shop: str) -> ShopRow:
    found = session.scalar(select(ShopRow).where(ShopRow.shop == shop).with_for_update())
    if found is not None:
        return found
    new = pacing.default_bucket(database_time(session))
    insert = insert_into(session, ShopRow).values(
        shop=shop,
        circuit=CircuitState.CLOSED,
        streaks={},
        available=new.available,
        maximum=new.maximum,
        restore_rate=new.restore_rate,
        pending=0.0,
        measured_at=new.measured_at,
        refusals=[],
    )
    session.execute(insert.on_conflict_do_nothing(index_elements=["shop"]))
    return session.scalars(select(ShopRow).where(ShopRow.shop == shop).with_for_update()).one()


def _bucket(row: ShopRow) -> LeakyBucket:
    return LeakyBucket(
        row.available, row.maximum, row.restore_rate, row.pending, row.measured_at, row.heard_at
    )


def _save_bucket(row: ShopRow, kept: LeakyBucket) -> None:
    row.available, row.maximum, row.restore_rate = kept.available, kept.maximum, kept.restore_rate
    row.pending, row.measured_at, row.heard_at = kept.pending, kept.measured_at, kept.synced_at


def _circuit(row: ShopRow) -> Circuit:
    streaks = {CallKind(kind): Streak(**streak) for kind, streak in row.streaks.items()}
    return Circuit(
        CircuitState(row.circuit),
        streaks,
        row.until,
        CallKind(row.opened_by) if row.opened_by else None,
    )


def _save_circuit(row: ShopRow, kept: Circuit) -> None:
    row.circuit, row.until, row.opened_by = kept.state, kept.until, kept.opened_by
    row.streaks = {kind: asdict(streak) for kind, streak in kept.streaks.items()}


def _status(row: ShopRow) -> ShopShown:
    circuit = _circuit(row)
    return ShopShown(
        shop=row.shop,
        circuit=CircuitShown.model_validate(circuit, from_attributes=True),
        bucket=BucketShown.model_validate(row, from_attributes=True),
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        refusals=tuple(datetime.fromtimestamp(at, UTC) for at in row.refusals),
    )
