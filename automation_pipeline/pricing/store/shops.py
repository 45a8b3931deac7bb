"""How a shop takes our calls, kept for all processes: turns are given one after the other, by the database's clock."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain import tank
from automation_pipeline.pricing.domain.circuit import (
    Answer,
    CallKind,
    Circuit,
    CircuitState,
    NotBefore,
    Streak,
    after_answer,
    ask,
    without_probe,
)
from automation_pipeline.pricing.domain.shop_calls import Bucket
from automation_pipeline.pricing.domain.tank import Tank
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.instants import database_time

MOST_REFUSALS = 100


@dataclass(frozen=True)
class Turn:
    """In how many seconds, from `at` on, the call may go; with 0 it goes now. `is_resting`: the shop wants to be left
    alone."""

    at: datetime
    seconds: float
    is_resting: bool
    circuit: Circuit
    is_probe: bool = False


@dataclass(frozen=True)
class ShopStanding:
    """`refusals` are when it last refused calls for coming too fast."""

    shop: str
    circuit: Circuit
    bucket: Bucket
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    refusals: Sequence[datetime]


def take_turn(session: Session, shop: str, cost: float, *, is_promised: bool) -> Turn:
    """Promise the points, unless they are promised, and say when the call may go."""
    row, now = _held(session, shop), database_time(session)
    wait = 0.0
    if not is_promised:
        left, wait = tank.promised(_tank(row), cost, now)
        _keep_tank(row, left)
    permission = ask(_circuit(row), now)
    if isinstance(permission, NotBefore):
        rest = (permission.at - now).total_seconds()
        return Turn(now, max(wait, rest), is_resting=True, circuit=_circuit(row))
    if wait <= 0:
        _keep_circuit(row, permission.circuit)
    is_probe = permission.is_probe and wait <= 0
    return Turn(now, wait, is_resting=False, circuit=permission.circuit, is_probe=is_probe)


def give_back(session: Session, shop: str, cost: float, turn: Turn | None = None) -> None:
    """The call is not made after all. `turn` is the one that it had, if it had one: its probe is for the next call."""
    row, now = _held(session, shop), database_time(session)
    _keep_tank(row, tank.returned(_tank(row), cost, now))
    if turn is not None and turn.is_probe:
        _keep_circuit(row, without_probe(_circuit(row), turn.circuit, now))


@dataclass(frozen=True)
class Heard:
    """What an answer said; None: the call was broken off. `since` is when it had its turn, `told_seconds` the wait that
    a refusal came with. A call that never left has cost nothing."""

    answer: Answer | None
    kind: CallKind
    cost: float
    since: datetime
    bucket: Bucket | None = None
    told_seconds: float | None = None
    was_sent: bool = True


def hear(session: Session, shop: str, said: Heard) -> tuple[Circuit, Circuit]:
    """The circuit before and after the answer."""
    row, now = _held(session, shop), database_time(session)
    before = _circuit(row)
    reckoned = _tank(row)
    if said.was_sent:
        _keep_tank(row, tank.heard(reckoned, said.cost, said.bucket, since=said.since, now=now))
    else:
        _keep_tank(row, tank.returned(reckoned, said.cost, now))
    if said.answer is None:
        return before, before
    told = None if said.told_seconds is None else timedelta(seconds=said.told_seconds)
    after = after_answer(before, said.kind, said.answer, now, told)
    _keep_circuit(row, after)
    if said.answer is Answer.THROTTLED:
        row.refusals = [*row.refusals, now.timestamp()][-MOST_REFUSALS:]
    return before, after


def standing_of(session: Session, shop: str) -> ShopStanding | None:
    """None: it was never called."""
    row = session.get(ShopRow, shop)
    return None if row is None else _standing(row)


def set_pause(session: Session, shop: str, *, by: str | None, reason: str | None) -> ShopStanding:
    """By nobody: it is not paused any more."""
    row = _held(session, shop)
    row.paused_at = None if by is None else row.paused_at or database_time(session)
    row.paused_by, row.pause_reason = by, reason
    return _standing(row)


def close_circuit(session: Session, shop: str) -> None:
    """Somebody knows that the shop is well again."""
    _keep_circuit(_held(session, shop), Circuit())


def is_shop_paused(session: Session, shop: str) -> bool:
    return session.scalar(select(ShopRow.paused_at).where(ShopRow.shop == shop)) is not None


def _held(session: Session, shop: str) -> ShopRow:
    found = session.scalar(select(ShopRow).where(ShopRow.shop == shop).with_for_update())
    if found is not None:
        return found
    new = tank.unheard(database_time(session))
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


def _tank(row: ShopRow) -> Tank:
    return Tank(row.available, row.maximum, row.restore_rate, row.pending, row.measured_at, row.heard_at)


def _keep_tank(row: ShopRow, kept: Tank) -> None:
    row.available, row.maximum, row.restore_rate = kept.available, kept.maximum, kept.restore_rate
    row.pending, row.measured_at, row.heard_at = kept.pending, kept.measured_at, kept.heard_at


def _circuit(row: ShopRow) -> Circuit:
    streaks = {CallKind(kind): Streak(**streak) for kind, streak in row.streaks.items()}
    return Circuit(CircuitState(row.circuit), streaks, row.until, CallKind(row.opened_by) if row.opened_by else None)


def _keep_circuit(row: ShopRow, kept: Circuit) -> None:
    row.circuit, row.until, row.opened_by = kept.state, kept.until, kept.opened_by
    row.streaks = {kind: asdict(streak) for kind, streak in kept.streaks.items()}


def _standing(row: ShopRow) -> ShopStanding:
    return ShopStanding(
        shop=row.shop,
        circuit=_circuit(row),
        bucket=Bucket(row.available, row.maximum, row.restore_rate),
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        refusals=[datetime.fromtimestamp(at, UTC) for at in row.refusals],
    )
