"""Audit configurations: a configuration has the steps by which audits judge calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from automation_pipeline.audits.models.configs import (
    AuditConfig,
    ConfigStep,
    StoredConfig,
    changed_config,
    changed_step,
    check_order,
    config_document,
    config_faults,
    new_step,
    parse_config,
    renumbered,
)
from automation_pipeline.audits.queries import configs
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database


def create_config(given: Mapping[str, object], *, database: Database, clock: Clock) -> StoredConfig:
    """Create a configuration. Raises InvalidInputError with one error per invalid field."""
    config = parse_config(given)
    with database.transaction() as session:
        return configs.get_config(session, configs.add_config(session, config, clock.now()))


class Outcome(StrEnum):
    CREATED = "created"
    UNCHANGED = "unchanged"
    UPDATED = "updated"


@dataclass(frozen=True)
class ImportedConfig:
    id: int
    outcome: Outcome
    config: AuditConfig


def import_config(
    given: Mapping[str, object], *, update: bool = False, database: Database, clock: Clock
) -> ImportedConfig:
    """Create the configuration, or with `update` replace the one of the same name.

    Raises InvalidInputError with one error per invalid field, and ConflictError when the name is
    taken and `update` is off.
    """
    config, now = parse_config(given), clock.now()
    with database.transaction() as session:
        configs.lock_config_imports(session)
        known = configs.find_by_name(session, config.name)
        if known is None:
            return ImportedConfig(configs.add_config(session, config, now), Outcome.CREATED, config)
        if known.config == config:
            return ImportedConfig(known.id, Outcome.UNCHANGED, config)
        if not update:
            before, after = config_document(known.config), config_document(config)
            differences = ", ".join(field for field in before if before[field] != after[field])
            raise ConflictError(
                f"Audit config {known.id} has the name {config.name} and other content "
                f"({differences}): add --update to replace it"
            )
        known = configs.lock_config(session, known.id)
        configs.write_config(session, known, config, [None] * len(config.steps), now)
        return ImportedConfig(known.id, Outcome.UPDATED, config)


def update_config(
    config_id: int, given: Mapping[str, object], *, database: Database, clock: Clock
) -> StoredConfig:
    """Change the given fields; null clears. Changed steps get new ids. Running audits keep the version
    that they started with."""
    with database.transaction() as session:
        stored = configs.lock_config(session, config_id)
        config = changed_config(stored.config, given)
        if config == stored.config:
            return stored
        has_new_steps = config.steps != stored.config.steps
        step_ids = [None] * len(config.steps) if has_new_steps else stored.step_ids
        configs.write_config(session, stored, config, step_ids, clock.now())
        return configs.get_config(session, config_id)


def set_config_active(
    config_id: int, *, active: bool, database: Database, clock: Clock
) -> StoredConfig:
    """Activate or deactivate a configuration. Its audits stay."""
    with database.transaction() as session:
        stored = configs.lock_config(session, config_id)
        if stored.config.is_active == active:
            return stored
        config = replace(stored.config, is_active=active)
        configs.write_config(session, stored, config, stored.step_ids, clock.now())
        return configs.get_config(session, config_id)


def validate_config(config_id: int, *, database: Database) -> tuple[tuple[str, str], ...]:
    """Return the errors by field; none if the configuration could be imported."""
    with database.reading() as session:
        return config_faults(config_document(configs.get_config(session, config_id).config))


def delete_config(config_id: int, *, database: Database) -> None:
    """Delete a configuration. Raises ConflictError if audits or batches refer to it."""
    with database.transaction() as session:
        configs.delete_config(session, config_id)


def add_step(
    config_id: int, given: Mapping[str, object], *, database: Database, clock: Clock
) -> ConfigStep:
    """Add a step. Raises InvalidInputError with one error per invalid field, and the free positions."""
    with database.transaction() as session:
        stored = configs.lock_config(session, config_id)
        steps = renumbered((*stored.config.steps, new_step(stored.config, given)))
        config, step_ids = replace(stored.config, steps=steps), (*stored.step_ids, None)
        configs.write_config(session, stored, config, step_ids, clock.now())
        stored = configs.get_config(session, config_id)
        return stored.step(stored.step_ids[-1])


def update_step(
    step_id: int, given: Mapping[str, object], *, database: Database, clock: Clock
) -> ConfigStep:
    """Change the given fields; null clears. Raises InvalidInputError with one error per invalid field,
    and the free positions when the position is taken."""
    with database.transaction() as session:
        stored = configs.lock_config_of_step(session, step_id)
        before = stored.step(step_id)
        step = changed_step(stored.config, before.step, given)
        if step == before.step:
            return before
        steps = {one: stored.step(one).step for one in stored.step_ids} | {step_id: step}
        step_ids = sorted(steps, key=lambda one: steps[one].position)
        config = replace(stored.config, steps=renumbered(steps[one] for one in step_ids))
        configs.write_config(session, stored, config, step_ids, clock.now())
        return configs.get_config(session, stored.id).step(step_id)


def reorder_steps(
    config_id: int, step_ids: Sequence[int], *, database: Database, clock: Clock
) -> StoredConfig:
    """Reorder the steps. Raises InvalidInputError unless each step is named once. Running audits keep
    their order."""
    with database.transaction() as session:
        stored = configs.lock_config(session, config_id)
        check_order(stored.step_ids, step_ids)
        if tuple(step_ids) == stored.step_ids:
            return stored
        steps = renumbered(stored.step(step_id).step for step_id in step_ids)
        config = replace(stored.config, steps=steps)
        configs.write_config(session, stored, config, step_ids, clock.now())
        return configs.get_config(session, config_id)


def delete_step(step_id: int, *, database: Database, clock: Clock) -> None:
    """Delete a step. Raises ConflictError if it is the only one."""
    with database.transaction() as session:
        stored = configs.lock_config_of_step(session, step_id)
        left = [one for one in stored.step_ids if one != step_id]
        if not left:
            raise ConflictError(
                f"Step {step_id} is the only one of audit config {stored.id}, which needs one"
            )
        steps = renumbered(stored.step(one).step for one in left)
        configs.write_config(
            session, stored, replace(stored.config, steps=steps), left, clock.now()
        )
