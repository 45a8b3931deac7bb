"""A price that was written in a shop, as it is kept and shown."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from automation_pipeline.core.json_model import Id, Instant, JsonModel


class PriceChange(JsonModel):
    """Amounts are in minor units. `was_found`: the shop had the price already, from a call whose answer was lost."""

    id: Id
    project_id: str
    shop: str
    kind: Literal["apply", "rollback"]
    source: str
    rule_run_id: Id
    target_id: Id
    product_id: str
    variant_id: str
    sku_id: str | None
    currency: str
    from_amount: int
    to_amount: int
    compare_at_old: int | None
    compare_at_new: int | None
    was_found: bool
    applied_at: Instant


@dataclass(frozen=True, kw_only=True)
class PriceChangeFilter:
    """What is None chooses nothing out."""

    project_id: str | None = None
    variant_id: str | None = None
    run_id: int | None = None
    since: datetime | None = None
