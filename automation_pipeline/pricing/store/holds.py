"""Who works on a run: one holder at a time, by the database's clock, fenced by a token that only rises."""

from dataclasses import dataclass

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.instants import database_now, database_time


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
    is_free = or_(RuleRunRow.lease_until.is_(None), RuleRunRow.lease_until <= database_now())
    token = session.scalar(
        update(RuleRunRow)
        .where(RuleRunRow.id == run_id, is_free)
        .values(lease_owner=owner, lease_token=RuleRunRow.lease_token + 1, lease_until=database_now(seconds))
        .returning(RuleRunRow.lease_token)
        .execution_options(synchronize_session=False)
    )
    return None if token is None else Hold(run_id, token)


def extend_hold(session: Session, hold: Hold, seconds: float) -> None:
    row = held_run(session, hold)
    row.lease_until = database_now(seconds)  # pyright: ignore[reportAttributeAccessIssue]  an expression is taken too


def release_hold(session: Session, hold: Hold) -> None:
    """Nothing, where it was lost."""
    session.execute(
        update(RuleRunRow)
        .where(RuleRunRow.id == hold.run_id, RuleRunRow.lease_token == hold.token)
        .values(lease_owner=None, lease_until=None)
        .execution_options(synchronize_session=False)
    )


def held_run(session: Session, hold: Hold) -> RuleRunRow:
    """The run, nobody else's until the transaction ends. LostHoldError: it is not ours any more."""
    row = locked_run(session, hold.run_id)
    if row.lease_token != hold.token or row.lease_until is None or row.lease_until <= database_time(session):
        raise LostHoldError(f"Rule run {hold.run_id} is worked on by somebody else.")
    return row


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
