"""What became of one step: judged and gated, or not judged. Only gated findings are stored."""

from dataclasses import dataclass

from automation_pipeline.audits.domain.chat import Usage
from automation_pipeline.audits.domain.config import AuditStep
from automation_pipeline.audits.domain.evidence import Gated, GatingStats
from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.modes import TranscriptMode


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """`missing` control points were not dealt with by the model, `unknown` ones were not asked for."""

    step: AuditStep
    gated: Gated
    usage: Usage
    mode: TranscriptMode
    missing: int = 0
    unknown: int = 0

    @property
    def finding(self) -> StepFinding:
        return self.gated.finding


@dataclass(frozen=True, kw_only=True)
class UnjudgedStep:
    """A step that got no usable answer, and why: it has no verdict. `usage` is what was spent on it in vain."""

    step: AuditStep
    error: str
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class MissingStep:
    """An unjudged step as it is kept."""

    position: int
    name: str
    severity: str
    is_critical: bool
    weight: int
    error: str
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class StoredStep:
    """A judged step as it is kept."""

    position: int
    name: str
    severity: str
    is_critical: bool
    weight: int
    finding: StepFinding
    usage: Usage
    stats: GatingStats
