"""Take a step out of a configuration. Those behind it move up."""

from automation_pipeline.audits.store import config_steps, configs
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database


def delete_step(step_id: int, *, database: Database, clock: Clock) -> None:
    """ConflictError when it is the last: a configuration without steps judges nothing."""
    with database.transaction() as session:
        stored = configs.hold_config(session, config_steps.config_of_step(session, step_id))
        left = [one for one in stored.step_ids if one != step_id]
        stored.step(step_id)
        if not left:
            raise ConflictError(f"Step {step_id} is the only one of audit config {stored.id}, which needs one")
        config_steps.remove_step(session, step_id)
        config_steps.place_steps(session, stored.id, left)
        configs.touch_config(session, stored.id, clock.now())
