"""Queries of the steps of a configuration, one by one. They are read together with it, in `configs`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, delete, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.config import AuditStep, Severity
from automation_pipeline.audits.tables import AuditStepRow
from automation_pipeline.core.errors import NotFoundError


@dataclass(frozen=True)
class ConfigStep:
    """A step as it is stored."""

    id: int
    config_id: int
    step: AuditStep


def config_of_step(session: Session, step_id: int) -> int:
    """The id of the configuration. NotFoundError when there is no such step."""
    config_id = session.scalar(select(AuditStepRow.audit_config_id).where(AuditStepRow.id == step_id))
    if config_id is None:
        raise unknown_step(step_id)
    return config_id


def add_steps(session: Session, config_id: int, steps: Iterable[AuditStep]) -> list[int]:
    rows = [AuditStepRow(audit_config_id=config_id, **_columns(step)) for step in steps]
    session.add_all(rows)
    session.flush()
    return [row.id for row in rows]


def write_step(session: Session, step_id: int, step: AuditStep) -> None:
    """All of it but its place, which is among others'."""
    columns = {name: value for name, value in _columns(step).items() if name != "position"}
    session.execute(
        update(AuditStepRow)
        .where(AuditStepRow.id == step_id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


def remove_step(session: Session, step_id: int) -> None:
    session.execute(delete(AuditStepRow).where(AuditStepRow.id == step_id).execution_options(synchronize_session=False))


def place_steps(session: Session, config_id: int, step_ids: Sequence[int]) -> None:
    """Give all steps of the configuration the positions 1 to n, in this order."""
    # No two steps may have one position, not even midway: first all go above the highest, then each to its place.
    is_of_it = AuditStepRow.audit_config_id == config_id
    highest = session.scalar(select(func.max(AuditStepRow.position)).where(is_of_it)) or 0
    _move(session, config_id, AuditStepRow.position + highest)
    places = {step_id: position for position, step_id in enumerate(step_ids, start=1)}
    _move(session, config_id, case(places, value=AuditStepRow.id))


def step_of(row: AuditStepRow) -> AuditStep:
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


def unknown_step(step_id: int) -> NotFoundError:
    return NotFoundError(f"Audit step with ID '{step_id}' not found")


def _move(session: Session, config_id: int, position: ColumnElement[int]) -> None:
    session.execute(
        update(AuditStepRow)
        .where(AuditStepRow.audit_config_id == config_id)
        .values(position=position)
        .execution_options(synchronize_session=False)
    )


def _columns(step: AuditStep) -> dict[str, object]:
    values = {"severity_level" if name == "severity" else name: value for name, value in vars(step).items()}
    return {**values, "control_points": list(step.control_points), "keywords": list(step.keywords)}
