"""Change what a schedule says, field by field."""

from collections.abc import Collection, Mapping
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import OutdatedError
from automation_pipeline.org_jobs.domain.audit_entry import differences
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule, input_document
from automation_pipeline.org_jobs.domain.schedule_changes import changed_schedule, is_expected, standing_after
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.schedule_writes import check_server, restand, tell
from automation_pipeline.org_jobs.store.schedules import as_schedule, columns_of, locked_with_place
from automation_pipeline.storage.database import Database


def update_schedule(  # noqa: PLR0913  the collaborators by name, and who wants what
    schedule_id: str,
    patch: Mapping[str, object],
    *,
    within: Within,
    database: Database,
    clock: Clock,
    actor: str,
    expected: int | datetime | None = None,
    call_origins: Collection[str] = (),
) -> OrgSchedule:
    """What the patch does not name stays, null clears what may be null. A change of when it is due counts from now on.

    OutdatedError: it is of another version, or was last changed at another instant, than the caller expects.
    """
    with database.transaction() as session:
        row, organisation = locked_with_place(session, schedule_id, within)
        stored, now = as_schedule(row), clock.now()
        if not is_expected(stored, expected):
            raise OutdatedError(f"Schedule {schedule_id} was changed meanwhile: look at it again.")
        changed = changed_schedule(stored, patch, call_origins=call_origins)
        before, after = differences(input_document(stored), input_document(changed))
        if not after:
            return stored
        if changed.server_instance_id != stored.server_instance_id:
            check_server(session, changed.server_instance_id, row.org_id)
        standing = standing_after(stored, changed, now)
        for name, value in columns_of(changed).items():
            setattr(row, name, value)
        is_suspended = organisation.suspended_at is not None
        restand(session, row, standing, is_suspended=is_suspended, actor=actor, now=now)
        tell(session, row, "update", actor=actor, now=now, before=before, after=after)
        return as_schedule(row)
