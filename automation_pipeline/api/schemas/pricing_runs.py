"""Pricing runs as the API shows them, and what is asked of them."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from automation_pipeline.automation.domain.field_rules import KnownId
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.field_rules import Flag
from automation_pipeline.pricing.domain.rule_run import RuleRun

MOST_TARGETS = 10_000
SOME: Mapping[str, object] = {"targetIds": ["118", "121"]}

TargetIds = Annotated[tuple[KnownId, ...], Field(min_length=1, max_length=MOST_TARGETS)]


class TargetWish(JsonModel):
    """Without `targetIds`, all that can be meant. `force` is for what would else be refused as of no use, or as no
    longer safe."""

    target_ids: TargetIds | None = None
    force: Flag = False


class RunAnswer(BaseModel):
    """`shopPaused`: nothing more is written until the shop is resumed, whatever is asked for."""

    success: Literal[True] = True
    data: RuleRun
    shopPaused: bool  # noqa: N815  its name in JSON
