"""Change what a step of a configuration says, field by field, or put it behind the others."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.config_changes import changed_step
from automation_pipeline.audits.store import config_steps, configs
from automation_pipeline.audits.store.config_steps import ConfigStep
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def update_step(step_id: int, given: Mapping[str, object], *, database: Database, clock: Clock) -> ConfigStep:
    """What is not named stays, null clears. InvalidInputError names every field at fault; a position that is taken is
    refused with those that are free."""
    with database.transaction() as session:
        stored = configs.hold_config(session, config_steps.config_of_step(session, step_id))
        before = stored.step(step_id)
        step = changed_step(stored.config, before.step, given)
        if step == before.step:
            return before
        config_steps.write_step(session, step_id, step)
        if step.position != before.step.position:
            places = {one: stored.step(one).step.position for one in stored.step_ids} | {step_id: step.position}
            config_steps.place_steps(session, stored.id, sorted(places, key=places.__getitem__))
        configs.touch_config(session, stored.id, clock.now())
        return configs.get_config(session, stored.id).step(step_id)
