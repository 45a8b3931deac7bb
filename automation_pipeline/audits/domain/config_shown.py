"""Audit configurations as people read them in JSON: with ids, and what was made of them."""

from collections.abc import Iterable

from automation_pipeline.audits.domain.config import AuditConfig, AuditStep, Severity
from automation_pipeline.core.json_model import Id, Instant, JsonModel, as_document


class ConfigStepShown(JsonModel):
    id: Id
    position: int
    name: str
    description: str | None
    prompt: str
    control_points: tuple[str, ...]
    keywords: tuple[str, ...]
    severity_level: Severity
    is_critical: bool
    weight: int
    chronological_important: bool
    verify_product_info: bool


class ConfigStats(JsonModel):
    """Of the audits that are not deleted, all versions of them; `all_audits` counts the deleted ones too. Averages and
    the rate, in percent, are of completed ones; None without any."""

    all_audits: int = 0
    total_audits: int = 0
    completed_audits: int = 0
    failed_audits: int = 0
    average_score: float | None = None
    average_duration_ms: int | None = None
    last_used_at: Instant | None = None
    compliance_rate: float | None = None


class ConfigShown(JsonModel):
    """`steps` and `stats` only where they were asked for."""

    id: Id
    name: str
    description: str | None
    system_prompt: str | None
    is_active: bool
    run_automatically: bool
    created_by: str | None
    created_at: Instant
    updated_at: Instant
    steps_count: int
    total_weight: int
    steps: tuple[ConfigStepShown, ...] | None = None
    stats: ConfigStats | None = None

    def document(self) -> dict[str, object]:
        """Without what was not asked for."""
        left_out = {name for name in ("steps", "stats") if getattr(self, name) is None}
        return {name: value for name, value in as_document(self).items() if name not in left_out}


def step_shown(step_id: int, step: AuditStep) -> ConfigStepShown:
    values = {"severity_level" if name == "severity" else name: value for name, value in vars(step).items()}
    return ConfigStepShown.model_validate({"id": step_id, **values})


def steps_shown(step_ids: Iterable[int], config: AuditConfig) -> tuple[ConfigStepShown, ...]:
    return tuple(step_shown(step_id, step) for step_id, step in zip(step_ids, config.steps, strict=True))
