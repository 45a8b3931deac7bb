"""Change what a schedule says, field by field."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.schedule_changes import INVALID_UPDATE, changed_by, consequences
from automation_pipeline.automation.domain.webhook import check_webhook_url
from automation_pipeline.automation.stages.check_audit_configs import check_audit_configs
from automation_pipeline.automation.store.schedules import (
    change_schedule,
    get_schedule,
    lock_schedule,
    replace_schedule,
)
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import OutdatedError
from automation_pipeline.storage.database import Database


def update_schedule(
    schedule_id: int,
    patch: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    webhook_origins: Collection[str] = (),
    is_expected: Callable[[datetime], bool] | None = None,
) -> Schedule:
    """What the patch does not name stays, null clears. Of two patches at once the second sees what the first did.

    OutdatedError when the schedule was last changed at an instant that is not the expected one.
    """
    with database.transaction() as session:
        stored = lock_schedule(session, schedule_id)
        if is_expected is not None and not is_expected(stored.updated_at):
            raise OutdatedError(f"Schedule {schedule_id} was changed meanwhile: look at it again")
        if not patch:
            return stored
        changed, now = changed_by(stored, patch), clock.now()
        if changed.webhook_url != stored.webhook_url:
            check_webhook_url(changed.webhook_url, webhook_origins, INVALID_UPDATE)
        # One that was deleted meanwhile must not stand in the way of other changes.
        new_configs = set(changed.specific_audit_configs) - set(stored.specific_audit_configs)
        check_audit_configs(session, new_configs, INVALID_UPDATE)
        replace_schedule(session, schedule_id, changed, now)
        change_schedule(session, schedule_id, consequences(stored, changed, now), now)
        return get_schedule(session, schedule_id)
