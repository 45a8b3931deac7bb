"""Queries about a shop: its bucket, its circuit, its pause."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.models.shop import BucketStatus
from automation_pipeline.pricing.rules import pacing as tank
from automation_pipeline.pricing.rules.pacing import (
    CallKind,
    CallOutcome,
    Circuit,
    CircuitState,
    LeakyBucket,
    NotBefore,
    Streak,
    after_answer,
    request_permit,
    without_probe,
)
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.statements import insert_into

MAX_REFUSALS = 100


@dataclass(frozen=True)
class CallTurn:
    """In how many seconds, from `at` on, the call may go; with 0 it goes now. `is_resting`: the
    shop wants to be left alone."""

    at: datetime
    seconds: float
    is_resting: bool
    circuit: Circuit
    is_probe: bool = False


@dataclass(frozen=True)
class ShopStatus:
    """`refusals` are when it last refused calls for coming too fast."""

    shop: str
    circuit: Circuit
    bucket: BucketStatus
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    refusals: Sequence[datetime]


def reserve_call(session: Session, shop: str, cost: float, *, is_promised: bool) -> CallTurn:
    """Promise the points, unless they are promised, and say when the call may go."""
    row, now = _locked_row(session, shop), database_time(session)
    wait = 0.0
    if not is_promised:
        left, wait = tank.reserve_points(_bucket(row), cost, now)
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
    """The call is not made after all. `turn` is the one that it had, if it had one: its probe is
    for the next call."""
    row, now = _locked_row(session, shop), database_time(session)
    _save_bucket(row, tank.refund_points(_bucket(row), cost, now))
    if turn is not None and turn.is_probe:
        _save_circuit(row, without_probe(_circuit(row), turn.circuit, now))


@dataclass(frozen=True)
class CallRecord:
    """What an answer said; None: the call was broken off. `since` is when it had its turn,
    `told_seconds` the wait that a refusal came with. A call that never left has cost nothing."""

    answer: CallOutcome | None
    kind: CallKind
    cost: float
    since: datetime
    bucket: BucketStatus | None = None
    told_seconds: float | None = None
    was_sent: bool = True


def record_call(session: Session, shop: str, said: CallRecord) -> tuple[Circuit, Circuit]:
    """The circuit before and after the answer."""
    row, now = _locked_row(session, shop), database_time(session)
    before = _circuit(row)
    reckoned = _bucket(row)
    if said.was_sent:
        _save_bucket(
            row, tank.sync_bucket(reckoned, said.cost, said.bucket, since=said.since, now=now)
        )
    else:
        _save_bucket(row, tank.refund_points(reckoned, said.cost, now))
    if said.answer is None:
        return before, before
    told = None if said.told_seconds is None else timedelta(seconds=said.told_seconds)
    after = after_answer(before, said.kind, said.answer, now, told)
    _save_circuit(row, after)
    if said.answer is CallOutcome.THROTTLED:
        row.refusals = [*row.refusals, now.timestamp()][-MAX_REFUSALS:]
    return before, after


def shop_status(session: Session, shop: str) -> ShopStatus | None:
    """None: it was never called."""
    row = session.get(ShopRow, shop)
    return None if row is None else _status(row)


def set_pause(session: Session, shop: str, *, by: str | None, reason: str | None) -> ShopStatus:
    """By nobody: it is not paused any more."""
    row = _locked_row(session, shop)
    row.paused_at = None if by is None else row.paused_at or database_time(session)
    row.paused_by, row.pause_reason = by, reason
    return _status(row)


def close_circuit(session: Session, shop: str) -> None:
    """Somebody knows that the shop is well again."""
    _save_circuit(_locked_row(session, shop), Circuit())


def is_shop_paused(session: Session, shop: str) -> bool:
    return session.scalar(select(ShopRow.paused_at).where(ShopRow.shop == shop)) is not None


def _locked_row(session: Session, shop: str) -> ShopRow:
    found = session.scalar(select(ShopRow).where(ShopRow.shop == shop).with_for_update())
    if found is not None:
        return found
    new = tank.default_bucket(database_time(session))
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
    row.pending, row.measured_at, row.heard_at = kept.pending, kept.measured_at, kept.heard_at


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


def _status(row: ShopRow) -> ShopStatus:
    return ShopStatus(
        shop=row.shop,
        circuit=_circuit(row),
        bucket=BucketStatus(row.available, row.maximum, row.restore_rate),
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        refusals=[datetime.fromtimestamp(at, UTC) for at in row.refusals],
    )
