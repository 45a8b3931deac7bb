"""Every price that was written in a shop, in the order of the writing."""

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.price_change import PriceChange, PriceChangeFilter
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.tables import PriceChangeRow


def price_changes(session: Session, chosen: PriceChangeFilter, limit: int, after_id: int = 0) -> list[PriceChange]:
    """`after_id` is the last one of the page before."""
    query = select(PriceChangeRow).where(PriceChangeRow.id > after_id, *_conditions(chosen))
    rows = session.scalars(query.order_by(PriceChangeRow.id).limit(limit))
    return [PriceChange.model_validate({name: getattr(row, name) for name in PriceChange.model_fields}) for row in rows]


def _conditions(chosen: PriceChangeFilter) -> list[ColumnElement[bool]]:
    conditions = [PriceChangeRow.tenant_id == TENANT]
    if chosen.project_id is not None:
        conditions.append(PriceChangeRow.project_id == chosen.project_id)
    if chosen.variant_id is not None:
        conditions.append(PriceChangeRow.variant_id == chosen.variant_id)
    if chosen.run_id is not None:
        conditions.append(PriceChangeRow.rule_run_id == chosen.run_id)
    if chosen.since is not None:
        conditions.append(PriceChangeRow.applied_at >= chosen.since)
    return conditions
