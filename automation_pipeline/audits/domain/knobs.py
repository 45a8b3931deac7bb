"""How hard an audit tries, and how strict it is."""

from dataclasses import dataclass

from automation_pipeline.core.retry import Backoff


@dataclass(frozen=True)
class GatingRules:
    """Which quotations count as evidence."""

    enabled: bool = True
    min_quote_characters: int = 12


@dataclass(frozen=True)
class ExcerptRules:
    """Whether steps that verify the product read an excerpt, and of how many chunks."""

    enabled: bool = True
    max_chunks: int = 40


@dataclass(frozen=True)
class Knobs:
    """`attempts` are calls of the model that get no answer; `repairs` are answers that break the schema and are sent
    back. `rounds` bounds the tool mode, its last answer included."""

    per_minute: int
    attempts: int
    backoff: Backoff
    steps_at_once: int
    max_prompt_characters: int
    lease_seconds: float
    repairs: int = 2
    rounds: int = 8
    gating: GatingRules = GatingRules()
    excerpt: ExcerptRules = ExcerptRules()
