"""Configurations as people read them: as many queries as kinds of things are asked for, however many there are."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnExpressionArgument, Select, func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.config_shown import ConfigShown, ConfigStepShown, step_shown
from automation_pipeline.audits.store.config_stats import stats_of
from automation_pipeline.audits.store.config_steps import step_of
from automation_pipeline.audits.store.configs import unknown_config
from automation_pipeline.audits.tables import AuditConfigRow, AuditStepRow
from automation_pipeline.storage.bulk import among


@dataclass(frozen=True)
class Shown:
    """What of a configuration is asked for."""

    steps: bool = False
    stats: bool = False


def config_page(
    session: Session, shown: Shown, *, include_inactive: bool, limit: int, offset: int
) -> list[ConfigShown]:
    """Newest first."""
    chosen = () if include_inactive else (AuditConfigRow.is_active,)
    return _read(session, shown, _counted(*chosen).limit(limit).offset(offset))


def config_view(session: Session, config_id: int, shown: Shown) -> ConfigShown:
    found = _read(session, shown, _counted(AuditConfigRow.id == config_id))
    if not found:
        raise unknown_config(config_id)
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


def _read(session: Session, shown: Shown, counted: _Counted) -> list[ConfigShown]:
    found = session.execute(counted).tuples().all()
    ids = [row.id for row, _, _ in found]
    steps = _steps(session, ids) if shown.steps else {}
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


def _steps(session: Session, config_ids: Sequence[int]) -> dict[int, list[ConfigStepShown]]:
    steps: dict[int, list[ConfigStepShown]] = {}
    rows = session.scalars(
        select(AuditStepRow)
        .where(among(session, AuditStepRow.audit_config_id, config_ids))
        .order_by(AuditStepRow.audit_config_id, AuditStepRow.position)
        .execution_options(populate_existing=True)
    )
    for row in rows:
        steps.setdefault(row.audit_config_id, []).append(step_shown(row.id, step_of(row)))
    return steps
