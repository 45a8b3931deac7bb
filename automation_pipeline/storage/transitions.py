"""The append-only log of state transitions: machine, entity, states, actor, reason and time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.storage.types import BigId, Table, UtcDateTime


@dataclass(frozen=True)
class Transition:
    machine: str
    entity_id: str
    from_state: str
    to_state: str
    actor: str
    at: datetime
    reason: str | None = None


class TransitionRow(Table):
    __tablename__ = "state_transitions"
    __table_args__ = (Index(None, "machine", "entity_id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    machine: Mapped[str]
    entity_id: Mapped[str]
    from_state: Mapped[str]
    to_state: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    at: Mapped[datetime] = mapped_column(UtcDateTime)


def record_transitions(session: Session, transitions: Sequence[Transition]) -> None:
    session.add_all(TransitionRow(**vars(transition)) for transition in transitions)
