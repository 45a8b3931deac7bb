"""Queries of audit configurations. A configuration and its steps are read by one statement: a change made meanwhile is
seen whole or not at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, ColumnExpressionArgument, case, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.config import AuditConfig, AuditStep, Severity
from automation_pipeline.audits.domain.reorder import reordered
from automation_pipeline.audits.tables import AuditBatchRow, AuditConfigRow, AuditRow, AuditStepRow
from automation_pipeline.core.errors import ConflictError, NotFoundError

IMPORTING = 7_310_201_813  # the advisory lock of whoever decides what a name stands for


@dataclass(frozen=True, kw_only=True)
class StoredConfig:
    """`step_ids` in the order of the steps."""

    id: int
    config: AuditConfig
    step_ids: tuple[int, ...]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class ListedConfig:
    """`audits` of all kinds, also failed and deleted ones: they all keep their configuration from being deleted."""

    stored: StoredConfig
    audits: int


def add_config(session: Session, config: AuditConfig, now: datetime) -> int:
    row = AuditConfigRow(**_columns(config), created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    _add_steps(session, row.id, config.steps)
    return row.id


def get_config(session: Session, config_id: int) -> StoredConfig:
    found = _read(session, AuditConfigRow.id == config_id)
    if not found:
        raise _unknown(config_id)
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
    _hold(session, config_id)
    session.execute(delete(AuditStepRow).where(AuditStepRow.audit_config_id == config_id))
    _write(session, config_id, **_columns(config), updated_at=now)
    _add_steps(session, config_id, config.steps)


def set_active(session: Session, config_id: int, active: bool, now: datetime) -> None:
    if _hold(session, config_id).is_active != active:
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
        raise _unknown(config_id)


def reorder_steps(session: Session, config_id: int, step_ids: Sequence[int], now: datetime) -> None:
    """InvalidInputError unless every step of the configuration is named once."""
    _hold(session, config_id)
    stored = get_config(session, config_id)
    positions = reordered(stored.step_ids, step_ids)
    if tuple(step_ids) == stored.step_ids:
        return
    # No two steps may have one position, not even midway: first all go above the highest, then each to its place.
    highest = max(step.position for step in stored.config.steps)
    _move(session, config_id, AuditStepRow.position + highest)
    _move(session, config_id, case(positions, value=AuditStepRow.id))
    _write(session, config_id, updated_at=now)


def _hold(session: Session, config_id: int) -> AuditConfigRow:
    """Nobody else changes it until the transaction ends; audits of it may begin meanwhile."""
    held = select(AuditConfigRow).where(AuditConfigRow.id == config_id).with_for_update(key_share=True)
    row = session.scalar(held.execution_options(populate_existing=True))
    if row is None:
        raise _unknown(config_id)
    return row


def _write(session: Session, config_id: int, **values: object) -> None:
    session.execute(
        update(AuditConfigRow)
        .where(AuditConfigRow.id == config_id)
        .values(**values)
        .execution_options(synchronize_session=False)
    )


def _move(session: Session, config_id: int, position: ColumnElement[int]) -> None:
    session.execute(
        update(AuditStepRow)
        .where(AuditStepRow.audit_config_id == config_id)
        .values(position=position)
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


def _unknown(config_id: int) -> NotFoundError:
    return NotFoundError(f"Audit config with ID '{config_id}' not found")


def _read(session: Session, *chosen: ColumnExpressionArgument[bool]) -> list[StoredConfig]:
    """Oldest first."""
    with_steps = (
        select(AuditConfigRow, AuditStepRow)
        .outerjoin(AuditStepRow, AuditStepRow.audit_config_id == AuditConfigRow.id)
        .where(*chosen)
        .order_by(AuditConfigRow.id, AuditStepRow.position)
        .execution_options(populate_existing=True)
    )
    return _grouped(session.execute(with_steps).tuples())


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
        steps=tuple(map(_step, steps)),
    )
    step_ids = tuple(step.id for step in steps)
    return StoredConfig(
        id=row.id, config=config, step_ids=step_ids, created_at=row.created_at, updated_at=row.updated_at
    )


def _step(row: AuditStepRow) -> AuditStep:
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


def _columns(config: AuditConfig) -> dict[str, object]:
    return {name: value for name, value in vars(config).items() if name != "steps"}


def _add_steps(session: Session, config_id: int, steps: Iterable[AuditStep]) -> None:
    session.add_all(AuditStepRow(audit_config_id=config_id, **_step_columns(step)) for step in steps)
    session.flush()


def _step_columns(step: AuditStep) -> dict[str, object]:
    values = {"severity_level" if name == "severity" else name: value for name, value in vars(step).items()}
    return {**values, "control_points": list(step.control_points), "keywords": list(step.keywords)}
