"""Which runs of rules are asked about."""

from dataclasses import dataclass

from automation_pipeline.pricing.domain.rule_run import RuleTrigger
from automation_pipeline.pricing.domain.states import RunState


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """A field that is None lets every run through."""

    project_id: str | None = None
    rule_id: int | None = None
    status: RunState | None = None
    trigger: RuleTrigger | None = None
