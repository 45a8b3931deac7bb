"""Add a step to a configuration, behind the others."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.config_changes import new_step
from automation_pipeline.audits.store import config_steps, configs
from automation_pipeline.audits.store.config_steps import ConfigStep
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def add_step(config_id: int, given: Mapping[str, object], *, database: Database, clock: Clock) -> ConfigStep:
    """InvalidInputError names every field at fault, and the positions that are free."""
    with database.transaction() as session:
        step = new_step(configs.hold_config(session, config_id).config, given)
        [step_id] = config_steps.add_steps(session, config_id, [step])
        configs.touch_config(session, config_id, clock.now())
    return ConfigStep(step_id, config_id, step)
