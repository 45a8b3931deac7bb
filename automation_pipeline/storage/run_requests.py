"""Requests for Dagster runs: rows with a unique key, which a sensor offers to Dagster and a run
takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import CheckConstraint, Index, func, or_, select, text, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.logs import CORRELATION_TAG, correlation_id
from automation_pipeline.storage.statements import database_now, upsert
from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, UtcDateTime

if TYPE_CHECKING:
    from automation_pipeline.core.launching import LaunchState

# An offered request that no run has taken is offered again after this long; Dagster refuses a key
# that it has seen.
OFFER_AGAIN_SECONDS = 60.0


@dataclass(frozen=True)
class NewRunRequest:
    """A job to execute once for this key. `config` is Dagster's run config, `tags` are its run
    tags."""

    key: str
    job: str
    config: JsonObject
    tags: Mapping[str, str]
    launch: int = 1

    @property
    def run_key(self) -> str:
        """Dagster launches only one run per key, so each launch has its own key."""
        return self.key if self.launch == 1 else f"{self.key}-attempt-{self.launch}"


class RunRequestRow(Table):
    __tablename__ = "run_requests"
    __table_args__ = (
        CheckConstraint("state IN ('waiting', 'taken', 'refused')", name="state"),
        Index(
            "ix_run_requests_waiting",
            "id",
            postgresql_where=text("state = 'waiting'"),
            sqlite_where=text("state = 'waiting'"),
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    request_key: Mapped[str] = mapped_column(unique=True)
    job: Mapped[str]
    config: Mapped[JsonObject] = mapped_column(Json)
    tags: Mapped[dict[str, str]] = mapped_column(Json)
    state: Mapped[str] = mapped_column(default="waiting")
    # Counts the Dagster runs that were requested for the key: 1, and one more for each that was
    # lost.
    launch: Mapped[int] = mapped_column(server_default="1")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    offered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    dagster_run_id: Mapped[str | None]
    reason: Mapped[str | None]


def file_requests(session: Session, requests: Sequence[NewRunRequest], now: datetime) -> None:
    """Existing keys are left unchanged. Requests inherit the correlation id of the caller."""
    asked_by = correlation_id()
    inherited = {CORRELATION_TAG: asked_by} if asked_by else {}
    rows = [
        {
            "request_key": request.key,
            "job": request.job,
            "config": request.config,
            "tags": {**inherited, **request.tags},
            "state": "waiting",
            "launch": request.launch,
            "created_at": now,
        }
        for request in requests
    ]
    upsert(session, RunRequestRow, rows, key=("request_key",))


def offer_waiting(session: Session, *, limit: int) -> list[NewRunRequest]:
    """The oldest waiting requests. Requests that were offered a short time ago are left out while
    their run starts."""
    not_lately = or_(
        RunRequestRow.offered_at.is_(None),
        RunRequestRow.offered_at <= database_now(-OFFER_AGAIN_SECONDS),
    )
    oldest = (
        select(RunRequestRow.id)
        .where(RunRequestRow.state == "waiting", not_lately)
        .order_by(RunRequestRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte(
            "oldest"
            # run once: PostgreSQL may repeat a subquery, and with SKIP LOCKED each time finds other
            # rows
        )
    )
    offered = session.scalars(
        update(RunRequestRow)
        .where(RunRequestRow.id.in_(select(oldest.c.id)))
        .values(offered_at=database_now())
        .returning(RunRequestRow)
        .execution_options(synchronize_session=False)
    )
    rows = sorted(offered, key=lambda row: row.id)
    return [
        NewRunRequest(row.request_key, row.job, row.config, row.tags, row.launch) for row in rows
    ]


def request_again(session: Session, key: str, lost_launch: int) -> bool:
    """Request another Dagster run in place of a lost one. False if it is already requested, or if
    the request was refused."""
    again = session.execute(
        update(RunRequestRow)
        .where(
            RunRequestRow.request_key == key,
            RunRequestRow.launch == lost_launch,
            RunRequestRow.state.in_(("waiting", "taken")),
        )
        .values(state="waiting", launch=lost_launch + 1, offered_at=None, dagster_run_id=None)
        .returning(RunRequestRow.id)
        .execution_options(synchronize_session=False)
    )
    return again.scalar_one_or_none() is not None


def refusals(session: Session, keys: Sequence[str]) -> dict[str, str]:
    refused = select(RunRequestRow.request_key, RunRequestRow.reason).where(
        RunRequestRow.request_key.in_(keys), RunRequestRow.state == "refused"
    )
    return {key: reason or "" for key, reason in session.execute(refused).tuples()}


@dataclass(frozen=True)
class FiledRequest:
    """`state` is waiting, taken or refused; `reason` is the reason of a refusal."""

    key: str
    job: str
    config: JsonObject
    tags: Mapping[str, str]
    state: str
    reason: str | None
    created_at: datetime
    launch: int = 1


def filed_requests(session: Session, keys: Sequence[str]) -> list[FiledRequest]:
    """The requests with these keys, in the order of their filing."""
    chosen = (
        select(RunRequestRow).where(RunRequestRow.request_key.in_(keys)).order_by(RunRequestRow.id)
    )
    return [
        FiledRequest(
            row.request_key,
            row.job,
            row.config,
            row.tags,
            row.state,
            row.reason,
            row.created_at,
            row.launch,
        )
        for row in session.scalars(chosen)
    ]


def launch_states(
    session: Session, keys: Sequence[str]
) -> dict[str, "tuple[LaunchState, str | None]"]:
    """The state of each known request, and the reason of a refusal."""
    from automation_pipeline.core.launching import LaunchState  # noqa: PLC0415  runs do not wait for requests

    columns = (
        RunRequestRow.request_key,
        RunRequestRow.state,
        RunRequestRow.offered_at,
        RunRequestRow.reason,
    )
    rows = session.execute(select(*columns).where(RunRequestRow.request_key.in_(keys))).tuples()
    return {
        key: (
            LaunchState.OFFERED if state == "waiting" and offered_at else LaunchState(state),
            reason,
        )
        for key, state, offered_at, reason in rows
    }


def hold_requests(session: Session, keys: Sequence[str], holder: str) -> list[str]:
    """Take the requests that were not offered to Dagster yet, so that no daemon launches them too."""
    unoffered = (RunRequestRow.state == "waiting", RunRequestRow.offered_at.is_(None))
    held = session.scalars(
        update(RunRequestRow)
        .where(RunRequestRow.request_key.in_(keys), *unoffered)
        .values(state="taken", dagster_run_id=holder)
        .returning(RunRequestRow.request_key)
        .execution_options(synchronize_session=False)
    )
    return list(held)


def waiting_requests(session: Session) -> int:
    return session.scalar(select(func.count()).where(RunRequestRow.state == "waiting")) or 0


def taken(session: Session, keys: Sequence[str]) -> set[str]:
    query = select(RunRequestRow.request_key).where(RunRequestRow.state == "taken")
    return set(session.scalars(query.where(RunRequestRow.request_key.in_(keys))))


def mark_taken(session: Session, key: str, dagster_run_id: str) -> None:
    _close(session, key, ("waiting",), state="taken", dagster_run_id=dagster_run_id)


def mark_refused(session: Session, key: str, reason: str) -> None:
    """Applies to waiting and taken requests."""
    _close(session, key, ("waiting", "taken"), state="refused", reason=reason)


def _close(session: Session, key: str, before: Sequence[str], **values: str) -> None:
    session.execute(
        update(RunRequestRow)
        .where(RunRequestRow.request_key == key, RunRequestRow.state.in_(before))
        .values(**values)
        .execution_options(synchronize_session=False)
    )
