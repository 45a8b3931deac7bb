"""Queries of audit configurations and their steps.

A configuration and its steps are read by one statement, so that a concurrent change is seen whole
or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    ColumnExpressionArgument,
    Select,
    bindparam,
    case,
    delete,
    func,
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
    ConfigStepShown,
    Severity,
    positions_in_order,
    step_shown,
)
from automation_pipeline.audits.tables import AuditBatchRow, AuditConfigRow, AuditRow, AuditStepRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.statements import among


@dataclass(frozen=True)
class ConfigStep:
    """A step as it is stored."""

    id: int
    config_id: int
    step: AuditStep


def config_of_step(session: Session, step_id: int) -> int:
    """The id of the configuration. NotFoundError when there is no such step."""
    config_id = session.scalar(
        select(AuditStepRow.audit_config_id).where(AuditStepRow.id == step_id)
    )
    if config_id is None:
        raise step_not_found(step_id)
    return config_id


def add_steps(session: Session, config_id: int, steps: Iterable[AuditStep]) -> list[int]:
    rows = [AuditStepRow(audit_config_id=config_id, **_step_columns(step)) for step in steps]
    session.add_all(rows)
    session.flush()
    return [row.id for row in rows]


def write_step(session: Session, step_id: int, step: AuditStep) -> None:
    """All of it but its place, which is among others'."""
    columns = {name: value for name, value in _step_columns(step).items() if name != "position"}
    session.execute(
        update(AuditStepRow)
        .where(AuditStepRow.id == step_id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


def remove_step(session: Session, step_id: int) -> None:
    session.execute(
        delete(AuditStepRow)
        .where(AuditStepRow.id == step_id)
        .execution_options(synchronize_session=False)
    )


def renumber_steps(session: Session, config_id: int, step_ids: Sequence[int]) -> None:
    """Give all steps of the configuration the positions 1 to n, in this order."""
    # No two steps may have one position, not even midway: first all go above the highest, then each
    # to its place.
    is_of_it = AuditStepRow.audit_config_id == config_id
    highest = session.scalar(select(func.max(AuditStepRow.position)).where(is_of_it)) or 0
    _move(session, config_id, AuditStepRow.position + highest)
    places = {step_id: position for position, step_id in enumerate(step_ids, start=1)}
    _move(session, config_id, case(places, value=AuditStepRow.id))


def step_from_row(row: AuditStepRow) -> AuditStep:
    return AuditStep(
        position=row.position,
        name=row.name,
        description=row.description,
        prompt=row.prompt,
        control_points=tuple(row.control_points),
        keywords=tuple(row.keywords),
        severity=Severity(row.severity_level),
        is_critical=row.is_critical,
        weight=row.weight,
        chronological_important=row.chronological_important,
        verify_product_info=row.verify_product_info,
    )


def step_not_found(step_id: int) -> NotFoundError:
    return NotFoundError(f"Audit step with ID '{step_id}' not found")


def _move(session: Session, config_id: int, position: ColumnElement[int]) -> None:
    session.execute(
        update(AuditStepRow)
        .where(AuditStepRow.audit_config_id == config_id)
        .values(position=position)
        .execution_options(synchronize_session=False)
    )


def _step_columns(step: AuditStep) -> dict[str, object]:
    values = {
        "severity_level" if name == "severity" else name: value
        for name, value in vars(step).items()
    }
    return {**values, "control_points": list(step.control_points), "keywords": list(step.keywords)}


IMPORT_LOCK = 7_310_201_813  # the advisory lock of whoever decides what a name stands for

_WITH_STEPS = (
    select(AuditConfigRow, AuditStepRow)
    .outerjoin(AuditStepRow, AuditStepRow.audit_config_id == AuditConfigRow.id)
    .order_by(AuditConfigRow.id, AuditStepRow.position)
    .execution_options(populate_existing=True)
)
_BY_ID = _WITH_STEPS.where(AuditConfigRow.id == bindparam("config"))
_KNOWN = select(AuditConfigRow.id).where(AuditConfigRow.id == bindparam("config"))


@dataclass(frozen=True, kw_only=True)
class StoredConfig:
    """`step_ids` in the order of the steps."""

    id: int
    config: AuditConfig
    step_ids: tuple[int, ...]
    created_at: datetime
    updated_at: datetime

    def step(self, step_id: int) -> ConfigStep:
        """NotFoundError when it has no such step."""
        if step_id not in self.step_ids:
            raise step_not_found(step_id)
        return ConfigStep(step_id, self.id, self.config.steps[self.step_ids.index(step_id)])


@dataclass(frozen=True)
class ListedConfig:
    """`audits` of all kinds, also failed and deleted ones: they all keep their configuration from
    being deleted."""

    stored: StoredConfig
    audits: int


def add_config(session: Session, config: AuditConfig, now: datetime) -> int:
    row = AuditConfigRow(**_config_columns(config), created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    add_steps(session, row.id, config.steps)
    return row.id


def check_config(session: Session, config_id: int) -> None:
    """NotFoundError unless there is one."""
    if execute(session, _KNOWN, {"config": config_id}).first() is None:
        raise config_not_found(config_id)


def get_config(session: Session, config_id: int) -> StoredConfig:
    found = _grouped(session.execute(_BY_ID, {"config": config_id}).tuples())
    if not found:
        raise config_not_found(config_id)
    return found[0]


def list_configs(session: Session, *, include_inactive: bool) -> list[ListedConfig]:
    """Newest first."""
    found = (
        _read_stored(session)
        if include_inactive
        else _read_stored(session, AuditConfigRow.is_active)
    )
    counted = select(AuditRow.audit_config_id, func.count()).group_by(AuditRow.audit_config_id)
    audits = dict(session.execute(counted).tuples().all())
    return [ListedConfig(stored, audits.get(stored.id, 0)) for stored in reversed(found)]


def find_by_name(session: Session, name: str) -> StoredConfig | None:
    """The newest of that name."""
    found = _read_stored(session, AuditConfigRow.name == name)
    return found[-1] if found else None


def automatic_configs(session: Session) -> list[StoredConfig]:
    """What every sale is audited by, oldest first."""
    return _read_stored(session, AuditConfigRow.is_active, AuditConfigRow.run_automatically)


def newest_active(session: Session) -> StoredConfig | None:
    newest_first = (AuditConfigRow.created_at.desc(), AuditConfigRow.id.desc())
    newest = (
        select(AuditConfigRow.id).where(AuditConfigRow.is_active).order_by(*newest_first).limit(1)
    )
    found = _read_stored(session, AuditConfigRow.id == newest.scalar_subquery())
    return found[0] if found else None


def known_ids(session: Session, ids: Iterable[int]) -> set[int]:
    """Those of them that are configurations, in use or not."""
    return set(session.scalars(select(AuditConfigRow.id).where(AuditConfigRow.id.in_(set(ids)))))


def lock_config_imports(session: Session) -> None:
    """Until the transaction ends nobody else may add a name. SQLite has one writer at a time
    anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(IMPORT_LOCK)))


def replace_config(session: Session, config_id: int, config: AuditConfig, now: datetime) -> None:
    """All of it: the steps are new ones, with new ids."""
    lock_config(session, config_id)
    session.execute(delete(AuditStepRow).where(AuditStepRow.audit_config_id == config_id))
    write_config(session, config_id, config, now)
    add_steps(session, config_id, config.steps)


def write_config(session: Session, config_id: int, config: AuditConfig, now: datetime) -> None:
    """All of it but its steps."""
    _write(session, config_id, **_config_columns(config), updated_at=now)


def set_active(session: Session, config_id: int, active: bool, now: datetime) -> None:
    if lock_config(session, config_id).config.is_active != active:
        _write(session, config_id, is_active=active, updated_at=now)


def delete_config(session: Session, config_id: int) -> None:
    """ConflictError when it is in use. Only the foreign keys can tell: an audit may begin in this
    very moment."""
    try:
        with session.begin_nested():
            found = (
                delete(AuditConfigRow)
                .where(AuditConfigRow.id == config_id)
                .returning(AuditConfigRow.id)
            )
            deleted = session.scalar(found)
    except IntegrityError:
        raise ConflictError(
            f"Audit config with ID '{config_id}' is used by {_users(session, config_id)} and cannot be deleted; "
            f"deactivate it instead: automation audit-configs deactivate {config_id}"
        ) from None
    if deleted is None:
        raise config_not_found(config_id)


def store_step_order(
    session: Session, config_id: int, step_ids: Sequence[int], now: datetime
) -> None:
    """InvalidInputError unless every step of the configuration is named once."""
    stored = lock_config(session, config_id)
    order = tuple(positions_in_order(stored.step_ids, step_ids))
    if order != stored.step_ids:
        renumber_steps(session, config_id, order)
        touch_config(session, config_id, now)


def touch_config(session: Session, config_id: int, now: datetime) -> None:
    """Its steps have changed."""
    _write(session, config_id, updated_at=now)


def lock_config(session: Session, config_id: int) -> StoredConfig:
    """As it is, and nobody else changes it until the transaction ends; audits of it may begin
    meanwhile."""
    held = (
        select(AuditConfigRow.id)
        .where(AuditConfigRow.id == config_id)
        .with_for_update(key_share=True)
    )
    if session.scalar(held) is None:
        raise config_not_found(config_id)
    return get_config(session, config_id)


def _write(session: Session, config_id: int, **values: object) -> None:
    session.execute(
        update(AuditConfigRow)
        .where(AuditConfigRow.id == config_id)
        .values(**values)
        .execution_options(synchronize_session=False)
    )


def _users(session: Session, config_id: int) -> str:
    audits = select(func.count()).where(AuditRow.audit_config_id == config_id)
    batches = select(func.count()).where(AuditBatchRow.audit_config_id == config_id)
    counts = {"audit": session.scalar(audits) or 0, "batch": session.scalar(batches) or 0}
    plural = {"audit": "audits", "batch": "batches"}
    return (
        " and ".join(f"{n} {what if n == 1 else plural[what]}" for what, n in counts.items() if n)
        or "something else"
    )


def config_not_found(config_id: int) -> NotFoundError:
    return NotFoundError(f"Audit config with ID '{config_id}' not found")


def _read_stored(session: Session, *chosen: ColumnExpressionArgument[bool]) -> list[StoredConfig]:
    """Oldest first."""
    return _grouped(session.execute(_WITH_STEPS.where(*chosen)).tuples())


def _grouped(rows: Iterable[tuple[AuditConfigRow, AuditStepRow | None]]) -> list[StoredConfig]:
    steps: dict[AuditConfigRow, list[AuditStepRow]] = {}
    for row, step in rows:
        steps.setdefault(row, []).extend([step] if step else [])
    return [_stored(row, of_it) for row, of_it in steps.items()]


def _stored(row: AuditConfigRow, steps: Sequence[AuditStepRow]) -> StoredConfig:
    config = AuditConfig(
        name=row.name,
        description=row.description,
        system_prompt=row.system_prompt,
        is_active=row.is_active,
        run_automatically=row.run_automatically,
        created_by=row.created_by,
        steps=tuple(map(step_from_row, steps)),
    )
    step_ids = tuple(step.id for step in steps)
    return StoredConfig(
        id=row.id,
        config=config,
        step_ids=step_ids,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _config_columns(config: AuditConfig) -> dict[str, object]:
    return {name: value for name, value in vars(config).items() if name != "steps"}


def stats_of(session: Session, config_ids: Iterable[int]) -> dict[int, ConfigStats]:
    """Of each of them that exists."""
    audit, completed = AuditRow.id, AuditRow.status == "completed"
    every = aliased(AuditRow)
    of_all = select(func.count()).where(every.audit_config_id == AuditConfigRow.id)
    rows = session.execute(
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
    ).tuples()
    return {
        config_id: ConfigStats(
            all_audits=every_one,
            total_audits=total,
            completed_audits=done,
            failed_audits=failed,
            average_score=None if score is None else round(float(score), 2),
            average_duration_ms=None if duration is None else round(duration),
            last_used_at=last,
            compliance_rate=round(100 * compliant / done, 2) if done else None,
        )
        for config_id, every_one, total, done, failed, score, duration, last, compliant in rows
    }


@dataclass(frozen=True)
class ConfigIncludes:
    """What of a configuration is asked for."""

    steps: bool = False
    stats: bool = False


def config_page(
    session: Session, shown: ConfigIncludes, *, include_inactive: bool, limit: int, offset: int
) -> list[ConfigShown]:
    """Newest first."""
    chosen = () if include_inactive else (AuditConfigRow.is_active,)
    return _read_shown(session, shown, _counted(*chosen).limit(limit).offset(offset))


def config_view(session: Session, config_id: int, shown: ConfigIncludes) -> ConfigShown:
    found = _read_shown(session, shown, _counted(AuditConfigRow.id == config_id))
    if not found:
        raise config_not_found(config_id)
    return found[0]


_Counted = Select[tuple[AuditConfigRow, int, int]]


def _counted(*chosen: ColumnExpressionArgument[bool]) -> _Counted:
    """Configurations with the number of their steps and what these weigh together."""
    of_it = AuditStepRow.audit_config_id == AuditConfigRow.id
    count = select(func.count()).where(of_it).scalar_subquery()
    weight = select(func.coalesce(func.sum(AuditStepRow.weight), 0)).where(of_it).scalar_subquery()
    return (
        select(AuditConfigRow, count, weight)
        .where(*chosen)
        .order_by(AuditConfigRow.id.desc())
        .execution_options(populate_existing=True)
    )


def _read_shown(session: Session, shown: ConfigIncludes, counted: _Counted) -> list[ConfigShown]:
    found = session.execute(counted).tuples().all()
    ids = [row.id for row, _, _ in found]
    steps = _steps_by_config(session, ids) if shown.steps else {}
    stats = stats_of(session, ids) if shown.stats else {}
    return [
        ConfigShown(
            id=row.id,
            name=row.name,
            description=row.description,
            system_prompt=row.system_prompt,
            is_active=row.is_active,
            run_automatically=row.run_automatically,
            created_by=row.created_by,
            created_at=row.created_at,
            updated_at=row.updated_at,
            steps_count=count,
            total_weight=weight,
            steps=tuple(steps.get(row.id, ())) if shown.steps else None,
            stats=stats.get(row.id),
        )
        for row, count, weight in found
    ]


def _steps_by_config(
    session: Session, config_ids: Sequence[int]
) -> dict[int, list[ConfigStepShown]]:
    steps: dict[int, list[ConfigStepShown]] = {}
    rows = session.scalars(
        select(AuditStepRow)
        .where(among(session, AuditStepRow.audit_config_id, config_ids))
        .order_by(AuditStepRow.audit_config_id, AuditStepRow.position)
        .execution_options(populate_existing=True)
    )
    for row in rows:
        steps.setdefault(row.audit_config_id, []).append(step_shown(row.id, step_from_row(row)))
    return steps
