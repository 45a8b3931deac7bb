"""Queries of audit configurations. A configuration and its steps are read by one statement: a change made meanwhile is
seen whole or not at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnExpressionArgument, bindparam, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.config import AuditConfig
from automation_pipeline.audits.domain.reorder import reordered
from automation_pipeline.audits.store.config_steps import ConfigStep, add_steps, place_steps, step_of, unknown_step
from automation_pipeline.audits.tables import AuditBatchRow, AuditConfigRow, AuditRow, AuditStepRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.prepared import execute

IMPORTING = 7_310_201_813  # the advisory lock of whoever decides what a name stands for

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
            raise unknown_step(step_id)
        return ConfigStep(step_id, self.id, self.config.steps[self.step_ids.index(step_id)])


@dataclass(frozen=True)
class ListedConfig:
    """`audits` of all kinds, also failed and deleted ones: they all keep their configuration from being deleted."""

    stored: StoredConfig
    audits: int


def add_config(session: Session, config: AuditConfig, now: datetime) -> int:
    row = AuditConfigRow(**_columns(config), created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    add_steps(session, row.id, config.steps)
    return row.id


def check_config(session: Session, config_id: int) -> None:
    """NotFoundError unless there is one."""
    if execute(session, _KNOWN, {"config": config_id}).first() is None:
        raise unknown_config(config_id)


def get_config(session: Session, config_id: int) -> StoredConfig:
    found = _grouped(session.execute(_BY_ID, {"config": config_id}).tuples())
    if not found:
        raise unknown_config(config_id)
    return found[0]


def list_configs(session: Session, *, include_inactive: bool) -> list[ListedConfig]:
    """Newest first."""
    found = _read(session) if include_inactive else _read(session, AuditConfigRow.is_active)
    counted = select(AuditRow.audit_config_id, func.count()).group_by(AuditRow.audit_config_id)
    audits = dict(session.execute(counted).tuples().all())
    return [ListedConfig(stored, audits.get(stored.id, 0)) for stored in reversed(found)]


def find_by_name(session: Session, name: str) -> StoredConfig | None:
    """The newest of that name."""
    found = _read(session, AuditConfigRow.name == name)
    return found[-1] if found else None


def automatic_configs(session: Session) -> list[StoredConfig]:
    """What every sale is audited by, oldest first."""
    return _read(session, AuditConfigRow.is_active, AuditConfigRow.run_automatically)


def newest_active(session: Session) -> StoredConfig | None:
    newest_first = (AuditConfigRow.created_at.desc(), AuditConfigRow.id.desc())
    newest = select(AuditConfigRow.id).where(AuditConfigRow.is_active).order_by(*newest_first).limit(1)
    found = _read(session, AuditConfigRow.id == newest.scalar_subquery())
    return found[0] if found else None


def known_ids(session: Session, ids: Iterable[int]) -> set[int]:
    """Those of them that are configurations, in use or not."""
    return set(session.scalars(select(AuditConfigRow.id).where(AuditConfigRow.id.in_(set(ids)))))


def one_import_at_a_time(session: Session) -> None:
    """Until the transaction ends nobody else may add a name. SQLite has one writer at a time anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(IMPORTING)))


def replace_config(session: Session, config_id: int, config: AuditConfig, now: datetime) -> None:
    """All of it: the steps are new ones, with new ids."""
    hold_config(session, config_id)
    session.execute(delete(AuditStepRow).where(AuditStepRow.audit_config_id == config_id))
    write_config(session, config_id, config, now)
    add_steps(session, config_id, config.steps)


def write_config(session: Session, config_id: int, config: AuditConfig, now: datetime) -> None:
    """All of it but its steps."""
    _write(session, config_id, **_columns(config), updated_at=now)


def set_active(session: Session, config_id: int, active: bool, now: datetime) -> None:
    if hold_config(session, config_id).config.is_active != active:
        _write(session, config_id, is_active=active, updated_at=now)


def delete_config(session: Session, config_id: int) -> None:
    """ConflictError when it is in use. Only the foreign keys can tell: an audit may begin in this very moment."""
    try:
        with session.begin_nested():
            found = delete(AuditConfigRow).where(AuditConfigRow.id == config_id).returning(AuditConfigRow.id)
            deleted = session.scalar(found)
    except IntegrityError:
        raise ConflictError(
            f"Audit config with ID '{config_id}' is used by {_users(session, config_id)} and cannot be deleted; "
            f"deactivate it instead: automation audit-configs deactivate {config_id}"
        ) from None
    if deleted is None:
        raise unknown_config(config_id)


def reorder_steps(session: Session, config_id: int, step_ids: Sequence[int], now: datetime) -> None:
    """InvalidInputError unless every step of the configuration is named once."""
    stored = hold_config(session, config_id)
    order = tuple(reordered(stored.step_ids, step_ids))
    if order != stored.step_ids:
        place_steps(session, config_id, order)
        touch_config(session, config_id, now)


def touch_config(session: Session, config_id: int, now: datetime) -> None:
    """Its steps have changed."""
    _write(session, config_id, updated_at=now)


def hold_config(session: Session, config_id: int) -> StoredConfig:
    """As it is, and nobody else changes it until the transaction ends; audits of it may begin meanwhile."""
    held = select(AuditConfigRow.id).where(AuditConfigRow.id == config_id).with_for_update(key_share=True)
    if session.scalar(held) is None:
        raise unknown_config(config_id)
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
        " and ".join(f"{n} {what if n == 1 else plural[what]}" for what, n in counts.items() if n) or "something else"
    )


def unknown_config(config_id: int) -> NotFoundError:
    return NotFoundError(f"Audit config with ID '{config_id}' not found")


def _read(session: Session, *chosen: ColumnExpressionArgument[bool]) -> list[StoredConfig]:
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
        steps=tuple(map(step_of, steps)),
    )
    step_ids = tuple(step.id for step in steps)
    return StoredConfig(
        id=row.id, config=config, step_ids=step_ids, created_at=row.created_at, updated_at=row.updated_at
    )


def _columns(config: AuditConfig) -> dict[str, object]:
    return {name: value for name, value in vars(config).items() if name != "steps"}
