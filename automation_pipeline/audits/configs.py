"""Audit configurations: a configuration has the steps by which audits judge calls.

One statement reads a configuration with its steps, so that a reader never sees half of a concurrent
change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ColumnExpressionArgument,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.models.configs import (
    AuditConfig,
    AuditStep,
    ConfigShown,
    ConfigStats,
    ConfigStep,
    Severity,
    StoredConfig,
    changed_config,
    changed_step,
    check_order,
    config_document,
    config_faults,
    config_not_found,
    config_shown,
    new_step,
    parse_config,
    step_not_found,
)
from automation_pipeline.audits.tables import AuditBatchRow, AuditConfigRow, AuditRow, AuditStepRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import advisory_lock, among

_WITH_STEPS = (
    select(AuditConfigRow, AuditStepRow)
    .outerjoin(AuditStepRow, AuditStepRow.audit_config_id == AuditConfigRow.id)
    .order_by(AuditConfigRow.id, AuditStepRow.position)
    .execution_options(populate_existing=True)
)


def _read(session: Session, *conditions: ColumnExpressionArgument[bool]) -> list[StoredConfig]:
    """Oldest first."""
    found: dict[AuditConfigRow, list[AuditStepRow]] = {}
    for row, step in session.execute(_WITH_STEPS.where(*conditions)).tuples():
        found.setdefault(row, []).extend([step] if step else [])
    return [_stored(row, steps) for row, steps in found.items()]


def _stored(row: AuditConfigRow, steps: Sequence[AuditStepRow]) -> StoredConfig:
    config = AuditConfig(
        name=row.name,
        description=row.description,
        system_prompt=row.system_prompt,
        is_active=row.is_active,
        run_automatically=row.run_automatically,
        created_by=row.created_by,
        steps=tuple(
            AuditStep(
                position=step.position,
                name=step.name,
                description=step.description,
                prompt=step.prompt,
                control_points=tuple(step.control_points),
                keywords=tuple(step.keywords),
                severity_level=Severity(step.severity_level),
                is_critical=step.is_critical,
                weight=step.weight,
                chronological_important=step.chronological_important,
                verify_product_info=step.verify_product_info,
            )
            for step in steps
        ),
    )
    return StoredConfig(
        id=row.id,
        config=config,
        step_ids=tuple(step.id for step in steps),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def get_config(session: Session, config_id: int) -> StoredConfig:
    found = _read(session, AuditConfigRow.id == config_id)
    if not found:
        raise config_not_found(config_id)
    return found[0]


def known_ids(session: Session, ids: Iterable[int]) -> set[int]:
    return set(session.scalars(select(AuditConfigRow.id).where(AuditConfigRow.id.in_(set(ids)))))


def find_by_name(session: Session, name: str) -> StoredConfig | None:
    """The newest configuration of that name."""
    found = _read(session, AuditConfigRow.name == name)
    return found[-1] if found else None


def automatic_configs(session: Session) -> list[StoredConfig]:
    """The configurations that automatically audit every sale, oldest first."""
    return _read(session, AuditConfigRow.is_active, AuditConfigRow.run_automatically)


def newest_active(session: Session) -> StoredConfig | None:
    newest = (
        select(AuditConfigRow.id)
        .where(AuditConfigRow.is_active)
        .order_by(AuditConfigRow.created_at.desc(), AuditConfigRow.id.desc())
        .limit(1)
    )
    found = _read(session, AuditConfigRow.id == newest.scalar_subquery())
    return found[0] if found else None


def config_page(
    session: Session,
    *,
    include_inactive: bool = False,
    include_steps: bool = False,
    include_stats: bool = False,
    limit: int,
    offset: int,
) -> list[ConfigShown]:
    """Newest first."""
    ids = select(AuditConfigRow.id).order_by(AuditConfigRow.id.desc()).limit(limit).offset(offset)
    if not include_inactive:
        ids = ids.where(AuditConfigRow.is_active)
    found = _read(session, AuditConfigRow.id.in_(ids))
    stats = stats_of(session, [stored.id for stored in found]) if include_stats else {}
    return [
        config_shown(stored, steps=include_steps, stats=stats.get(stored.id))
        for stored in reversed(found)
    ]


def config_view(session: Session, config_id: int, *, include_stats: bool = False) -> ConfigShown:
    stored = get_config(session, config_id)
    stats = stats_of(session, [config_id])[config_id] if include_stats else None
    return config_shown(stored, steps=True, stats=stats)


def stats_of(session: Session, config_ids: Iterable[int]) -> dict[int, ConfigStats]:
    """Unknown configurations are omitted."""
    audit, completed = AuditRow.id, AuditRow.status == "completed"
    of_all = select(func.count()).where(aliased(AuditRow).audit_config_id == AuditConfigRow.id)
    query = (
        select(
            AuditConfigRow.id,
            of_all.correlate(AuditConfigRow).scalar_subquery(),
            func.count(audit),
            func.count(audit).filter(completed),
            func.count(audit).filter(AuditRow.status == "failed"),
            func.avg(AuditRow.score_percentage).filter(completed),
            func.avg(AuditRow.duration_ms).filter(completed),
            func.max(AuditRow.created_at),
            func.count(audit).filter(completed, AuditRow.is_compliant.is_(True)),
        )
        .outerjoin(
            AuditRow,
            (AuditRow.audit_config_id == AuditConfigRow.id) & AuditRow.deleted_at.is_(None),
        )
        .where(among(session, AuditConfigRow.id, config_ids))
        .group_by(AuditConfigRow.id)
    )
    return {
        config_id: ConfigStats(
            all_audits=all_audits,
            total_audits=total,
            completed_audits=done,
            failed_audits=failed,
            average_score=None if score is None else round(float(score), 2),
            average_duration_ms=None if duration is None else round(duration),
            last_used_at=last,
            compliance_rate=round(100 * compliant / done, 2) if done else None,
        )
        for config_id, all_audits, total, done, failed, score, duration, last, compliant in (
            session.execute(query).tuples()
        )
    }


def lock_config(session: Session, config_id: int) -> StoredConfig:
    """Lock the configuration against other changes until the transaction ends. Audits with it may still start."""
    row = select(AuditConfigRow.id).where(AuditConfigRow.id == config_id)
    if session.scalar(row.with_for_update(key_share=True)) is None:
        raise config_not_found(config_id)
    return get_config(session, config_id)


def lock_config_of_step(session: Session, step_id: int) -> StoredConfig:
    found = session.scalar(select(AuditStepRow.audit_config_id).where(AuditStepRow.id == step_id))
    if found is None:
        raise step_not_found(step_id)
    stored = lock_config(session, found)
    stored.step(step_id)  # raises if it was deleted before the lock
    return stored


def add_config(session: Session, config: AuditConfig, now: datetime) -> int:
    row = AuditConfigRow(**_config_columns(config), created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    _add_steps(session, row.id, config.steps)
    return row.id


def write_config(
    session: Session,
    stored: StoredConfig,
    config: AuditConfig,
    step_ids: Sequence[int | None],
    now: datetime,
) -> StoredConfig:
    """Replace the stored configuration, which the caller has locked. Steps with an id in `step_ids` keep it,
    steps without one are new, and other stored steps are deleted."""
    session.execute(
        update(AuditConfigRow)
        .where(AuditConfigRow.id == stored.id)
        .values(**_config_columns(config), updated_at=now)
        .execution_options(synchronize_session=False)
    )
    if (config.steps, tuple(step_ids)) == (stored.config.steps, stored.step_ids):
        return get_config(session, stored.id)
    steps = list(zip(step_ids, config.steps, strict=True))
    kept = [{"id": step_id, **_columns(step)} for step_id, step in steps if step_id is not None]
    session.execute(
        delete(AuditStepRow).where(AuditStepRow.id.in_(set(stored.step_ids) - set(step_ids)))
    )
    if kept:
        # Positions are unique even within the transaction, so kept steps first move behind all others.
        session.execute(
            update(AuditStepRow)
            .where(AuditStepRow.audit_config_id == stored.id)
            .values(position=AuditStepRow.position + len(stored.step_ids))
            .execution_options(synchronize_session=False)
        )
        session.execute(update(AuditStepRow), kept)
    _add_steps(session, stored.id, [step for step_id, step in steps if step_id is None])
    return get_config(session, stored.id)


def _add_steps(session: Session, config_id: int, steps: Sequence[AuditStep]) -> None:
    if steps:
        session.execute(
            insert(AuditStepRow),
            [{"audit_config_id": config_id, **_columns(step)} for step in steps],
        )


def _config_columns(config: AuditConfig) -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if name != "steps"}


def _columns(step: AuditStep) -> dict[str, Any]:
    return {
        **vars(step),
        "control_points": list(step.control_points),
        "keywords": list(step.keywords),
    }


def delete_config_row(session: Session, config_id: int) -> None:
    """Raises ConflictError for a configuration in use. Only the foreign keys can decide this, because an audit
    may start at the same time."""
    try:
        with session.begin_nested():
            deleted = session.scalar(
                delete(AuditConfigRow)
                .where(AuditConfigRow.id == config_id)
                .returning(AuditConfigRow.id)
            )
    except IntegrityError:
        users = (
            _users(session, AuditRow.audit_config_id == config_id, "audit", "audits"),
            _users(session, AuditBatchRow.audit_config_id == config_id, "batch", "batches"),
        )
        used_by = " and ".join(filter(None, users)) or "something else"
        raise ConflictError(
            f"Audit config with ID '{config_id}' is used by {used_by} and cannot be deleted; "
            f"deactivate it instead: automation audit-configs deactivate {config_id}"
        ) from None
    if deleted is None:
        raise config_not_found(config_id)


def _users(session: Session, condition: ColumnElement[bool], one: str, many: str) -> str:
    count = session.scalar(select(func.count()).where(condition))
    return f"{count} {one if count == 1 else many}" if count else ""


def create_config(given: Mapping[str, object], *, database: Database, clock: Clock) -> StoredConfig:
    config = parse_config(given)
    with database.transaction() as session:
        return get_config(session, add_config(session, config, clock.now()))


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
        advisory_lock(session, "audit-config-imports")  # imports find configurations by name
        known = find_by_name(session, config.name)
        if known is None:
            return ImportedConfig(add_config(session, config, now), Outcome.CREATED, config)
        if known.config == config:
            return ImportedConfig(known.id, Outcome.UNCHANGED, config)
        if not update:
            before, after = config_document(known.config), config_document(config)
            differences = ", ".join(field for field in before if before[field] != after[field])
            raise ConflictError(
                f"Audit config {known.id} has the name {config.name} and other content "
                f"({differences}): add --update to replace it"
            )
        known = lock_config(session, known.id)
        write_config(session, known, config, [None] * len(config.steps), now)
        return ImportedConfig(known.id, Outcome.UPDATED, config)


def update_config(
    config_id: int, given: Mapping[str, object], *, database: Database, clock: Clock
) -> StoredConfig:
    """Change the given fields; null clears. Changed steps get new ids. Running audits keep the version
    that they started with."""
    with database.transaction() as session:
        stored = lock_config(session, config_id)
        config = changed_config(stored.config, given)
        if config == stored.config:
            return stored
        has_new_steps = config.steps != stored.config.steps
        step_ids = [None] * len(config.steps) if has_new_steps else stored.step_ids
        return write_config(session, stored, config, step_ids, clock.now())


def set_config_active(
    config_id: int, *, active: bool, database: Database, clock: Clock
) -> StoredConfig:
    """Activate or deactivate a configuration, even one that today's rules would refuse. Its audits stay."""
    with database.transaction() as session:
        stored = lock_config(session, config_id)
        if stored.config.is_active == active:
            return stored
        config = replace(stored.config, is_active=active)
        return write_config(session, stored, config, stored.step_ids, clock.now())


def validate_config(config_id: int, *, database: Database) -> tuple[tuple[str, str], ...]:
    """Return the errors by field; none if the configuration could be imported."""
    with database.reading() as session:
        return config_faults(config_document(get_config(session, config_id).config))


def delete_config(config_id: int, *, database: Database) -> None:
    with database.transaction() as session:
        delete_config_row(session, config_id)


def add_step(
    config_id: int, given: Mapping[str, object], *, database: Database, clock: Clock
) -> ConfigStep:
    """Add a step. Raises InvalidInputError with one error per invalid field, and the free positions."""
    with database.transaction() as session:
        stored = lock_config(session, config_id)
        steps = {**stored.steps, None: new_step(stored.config, given)}
        stored = _write_steps(session, stored, steps, clock.now())
        return stored.step(stored.step_ids[-1])


def update_step(
    step_id: int, given: Mapping[str, object], *, database: Database, clock: Clock
) -> ConfigStep:
    """Change the given fields; null clears. Raises InvalidInputError with one error per invalid field,
    and the free positions when the position is taken."""
    with database.transaction() as session:
        stored = lock_config_of_step(session, step_id)
        before = stored.step(step_id)
        step = changed_step(stored.config, before.step, given)
        if step == before.step:
            return before
        steps = sorted(
            {**stored.steps, step_id: step}.items(), key=lambda numbered: numbered[1].position
        )
        return _write_steps(session, stored, dict(steps), clock.now()).step(step_id)


def reorder_steps(
    config_id: int, step_ids: Sequence[int], *, database: Database, clock: Clock
) -> StoredConfig:
    """Reorder the steps. Raises InvalidInputError unless each step is named once. Running audits keep
    their order."""
    with database.transaction() as session:
        stored = lock_config(session, config_id)
        check_order(stored.step_ids, step_ids)
        if tuple(step_ids) == stored.step_ids:
            return stored
        steps = {step_id: stored.steps[step_id] for step_id in step_ids}
        return _write_steps(session, stored, steps, clock.now())


def delete_step(step_id: int, *, database: Database, clock: Clock) -> None:
    """Delete a step. Raises ConflictError if it is the only one."""
    with database.transaction() as session:
        stored = lock_config_of_step(session, step_id)
        if len(stored.steps) == 1:
            raise ConflictError(
                f"Step {step_id} is the only one of audit config {stored.id}, which needs one"
            )
        steps = {one: step for one, step in stored.steps.items() if one != step_id}
        _write_steps(session, stored, steps, clock.now())


def _write_steps(
    session: Session, stored: StoredConfig, steps: Mapping[Any, AuditStep], now: datetime
) -> StoredConfig:
    """Store the steps by id, in this order. A new step has the id None."""
    in_order = (
        replace(step, position=number) for number, step in enumerate(steps.values(), start=1)
    )
    config = replace(stored.config, steps=tuple(in_order))
    return write_config(session, stored, config, list(steps), now)
