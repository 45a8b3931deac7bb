"""Who works on a run: one holder at a time, by the database's clock, fenced by a token that only rises."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.claims import LostClaimError, RowClaims
from automation_pipeline.storage.instants import database_now, database_time

RUNS = RowClaims(
    RuleRunRow, RuleRunRow.id, owner=RuleRunRow.lease_owner, token=RuleRunRow.lease_token, until=RuleRunRow.lease_until
)


class LostHoldError(PermanentError):
    """Somebody else works on the run: whatever this worker did is not wanted any more."""


class RunBusyError(TransientError):
    """Somebody else works on the run, or did a moment ago."""


@dataclass(frozen=True)
class Hold:
    run_id: int
    token: int


def take_hold(session: Session, run_id: int, owner: str, seconds: float) -> Hold | None:
    """None: somebody else has it."""
    taken = RUNS.take(session, [RuleRunRow.id == run_id], owner, seconds)
    return Hold(run_id, taken[0].token) if taken else None


def extend_hold(session: Session, hold: Hold, seconds: float) -> None:
    row = held_run(session, hold)
    row.lease_until = database_now(seconds)  # pyright: ignore[reportAttributeAccessIssue]  an expression is taken too


def release_hold(session: Session, hold: Hold) -> None:
    """Nothing, where it was lost."""
    RUNS.release(session, [(hold.run_id, hold.token)])


def held_run(session: Session, hold: Hold) -> RuleRunRow:
    """The run, nobody else's until the transaction ends. LostHoldError: it is not ours any more."""
    try:
        return RUNS.require(session, hold.run_id, hold.token)
    except LostClaimError:
        locked_run(session, hold.run_id)  # NotFoundError, where it does not exist
        raise LostHoldError(f"Rule run {hold.run_id} is worked on by another process.") from None


def locked_run(session: Session, run_id: int) -> RuleRunRow:
    row = session.scalar(select(RuleRunRow).where(RuleRunRow.id == run_id).with_for_update())
    if row is None:
        raise no_such_run(run_id)
    return row


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Rule run {run_id} does not exist.")


def seconds_until_free(session: Session, run_id: int) -> float:
    until = session.scalar(select(RuleRunRow.lease_until).where(RuleRunRow.id == run_id))
    return 0.0 if until is None else max((until - database_time(session)).total_seconds(), 0.0)
