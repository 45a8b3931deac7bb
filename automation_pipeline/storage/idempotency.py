"""Idempotency keys: the answer of a request is stored in the transaction that did its work."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, UniqueConstraint, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.storage.statements import database_now, insert_into
from automation_pipeline.storage.types import BigId, Table, UtcDateTime

KEPT_DAYS = 7


class IdempotencyKeyRow(Table):
    __tablename__ = "idempotency_keys"
    __table_args__ = (UniqueConstraint("caller", "key"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    caller: Mapped[str]
    key: Mapped[str]
    # A digest of method, path and body: the same key for another request is an error.
    fingerprint: Mapped[str]
    status: Mapped[int | None]
    # Stored as text, because a JSON column may change the order of fields.
    answer: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


@dataclass(frozen=True)
class Answered:
    fingerprint: str
    status: int
    answer: str


def claim_key(session: Session, caller: str, key: str, fingerprint: str) -> Answered | None:
    """Return the stored answer of the key. None for a new key, which is held until the transaction
    ends; other requests with it wait."""
    is_over = IdempotencyKeyRow.created_at < database_now(-KEPT_DAYS * 86_400.0)
    session.execute(delete(IdempotencyKeyRow).where(*_is(caller, key), is_over))
    insert = insert_into(session, IdempotencyKeyRow)
    values = {
        "caller": caller,
        "key": key,
        "fingerprint": fingerprint,
        "created_at": database_now(),
    }
    row_id = session.scalar(
        insert.values(**values).on_conflict_do_nothing().returning(IdempotencyKeyRow.id)
    )
    if row_id is not None:
        return None
    row = session.scalars(select(IdempotencyKeyRow).where(*_is(caller, key))).one()
    return Answered(row.fingerprint, row.status or 0, row.answer or "")


def keep_answer(session: Session, caller: str, key: str, answered: Answered) -> None:
    row = session.scalars(select(IdempotencyKeyRow).where(*_is(caller, key))).one()
    row.status, row.answer = answered.status, answered.answer


def _is(caller: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return IdempotencyKeyRow.caller == caller, IdempotencyKeyRow.key == key
