"""An audit configuration: the steps that a fiche's calls are judged by. Its JSON form is in `config_document`."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, kw_only=True)
class AuditStep:
    """One step, at its `position` from 1. Not being CONFORME on a critical one rejects the whole audit."""

    position: int
    name: str
    prompt: str
    control_points: tuple[str, ...]
    severity: Severity
    description: str | None = None
    keywords: tuple[str, ...] = ()
    is_critical: bool = False
    weight: int = 5
    chronological_important: bool = False
    verify_product_info: bool = False


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """`steps` in the order of their positions, which are 1 to n without gaps."""

    name: str
    steps: tuple[AuditStep, ...]
    description: str | None = None
    system_prompt: str | None = None
    is_active: bool = True
    run_automatically: bool = False
    created_by: str | None = None

    @property
    def total_weight(self) -> int:
        return sum(step.weight for step in self.steps)
