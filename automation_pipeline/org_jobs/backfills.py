"""Use cases of backfills."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.core.scheduling.timing import Timing
from automation_pipeline.org_jobs.models.job_types import checked_payload
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import BatchState
from automation_pipeline.org_jobs.queries.backfills import (
    add_batch,
    done_in,
    get_backfill,
    locked_batch,
    stop_batch,
    write_batch,
)
from automation_pipeline.org_jobs.queries.dispatch import host_of, job_of
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry, own_type
from automation_pipeline.org_jobs.queries.schedules import locked_with_place, planned_of, timing_of
from automation_pipeline.org_jobs.rules.backfills import (
    Backfill,
    BackfillInput,
    BackfillTime,
    check_backfill_count,
    chosen_times,
    due_times,
    read_backfill,
)
from automation_pipeline.org_jobs.tables import OrgScheduleRow
from automation_pipeline.storage.database import Database, Session


def backfill_schedule(  # noqa: PLR0913  the collaborators by name
    schedule_id: str,
    given: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> Backfill:
    """All or nothing; a dry run writes nothing. InvalidInputError where there is more to be done
    than the limit. ConflictError while its organisation is suspended, and for a schedule that
    cannot be read any more."""
    wish = read_backfill(given)
    with database.transaction() as session:
        row, organisation = locked_with_place(session, schedule_id, within)
        if organisation.suspended_at is not None:
            raise ConflictError(f"Organisation '{organisation.id}' is suspended: resume it first.")
        now = clock.now()
        timing, job = _read(session, row, now, call_origins)
        done = done_in(session, row, wish.from_at, min(wish.until_at, now))
        times = chosen_times(due_times(timing, wish, now), done, wish.behaviour, planned_of(row))
        wanted = [one for one in times if one.left_out is None]
        check_backfill_count(len(wanted), wish.limit)
        if wish.dry_run:
            return _shown(row, wish, times, len(wanted), actor, now)
        batch = add_batch(session, row, wish, actor, now)
        write_batch(session, row, batch, wanted, job=job, now=now)
        said = {"batchId": str(batch.id), "from": iso(wish.from_at), "until": iso(wish.until_at)}
        add_audit_entry(
            session,
            org_id=row.org_id,
            actor=actor,
            action="backfill",
            entity="schedule",
            entity_id=row.id,
            after={**said, "behaviour": wish.behaviour, "total": batch.total},
            now=now,
        )
        return get_backfill(session, batch.id, within)


def _read(
    session: Session, row: OrgScheduleRow, now: datetime, call_origins: Collection[str]
) -> tuple[Timing, NewJob]:
    """Outside its window nothing begins."""
    try:
        timing = timing_of(row)
        own_types = own_type(session, row.org_id, row.job_type)
        job = job_of(row, timing, now, host_of(session, row), own_types)
        checked_payload(job.type, job.payload, call_origins=call_origins)
    except InvalidInputError as error:
        raise ConflictError(
            f"Schedule {row.id} cannot be done any more, correct it first: {sentence_of(error)}"
        ) from None
    opens_at = (
        None
        if timing.is_open(now) or timing.window is None
        else timing.window.clamp(now, timing.zone)
    )
    return timing, replace(job, not_before=opens_at)


def _shown(
    row: OrgScheduleRow,
    wish: BackfillInput,
    times: Sequence[BackfillTime],
    total: int,
    actor: str,
    now: datetime,
) -> Backfill:
    return Backfill.model_validate(
        {
            "id": None,
            "org_id": row.org_id,
            "schedule_id": row.id,
            "status": None,
            **{
                name: getattr(wish, name)
                for name in ("behaviour", "from_at", "until_at", "dry_run")
            },
            "total": total,
            "created_by": actor,
            "created_at": now,
            "times": times,
        }
    )


CANCELLED = "Its backfill was cancelled."


def cancel_backfill(
    batch_id: int,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
) -> Backfill:
    """Safe to repeat. ConflictError when all of it is done."""
    with database.transaction() as session:
        batch, now = locked_batch(session, batch_id, within), clock.now()
        if batch.status == BatchState.CANCELLED:
            return get_backfill(session, batch_id, within)
        if batch.status != BatchState.RUNNING:
            raise ConflictError(f"Backfill {batch_id} is over: there is nothing to cancel.")
        batch.status, batch.finished_at = BatchState.CANCELLED, now
        session.flush()
        stop_batch(session, batch, actor, now, f"{CANCELLED} {reason}" if reason else CANCELLED)
        add_audit_entry(
            session,
            org_id=batch.org_id,
            actor=actor,
            action="cancel",
            entity="backfill",
            entity_id=str(batch_id),
            reason=reason,
            now=now,
        )
        return get_backfill(session, batch_id, within)
