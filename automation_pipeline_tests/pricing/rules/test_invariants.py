"""The numbers of a run's targets fit its state."""

from collections import Counter

from automation_pipeline.pricing.models.runs import PricingRunState, TargetCounts
from automation_pipeline.pricing.rules.monitoring import broken_invariants
from automation_pipeline_tests.tables import every_case


def faults(status: str, states: str) -> list[str]:
    counts = TargetCounts(**Counter(states.lower().split()))
    return broken_invariants(1, PricingRunState(status), counts)


@every_case(
    ("status", "states"),
    [
        ("PREVIEW", "PREVIEW"),
        ("APPLYING", "APPLIED QUEUED APPLYING FAILED"),
        ("APPLIED", ""),
        ("APPLIED", "APPLIED APPLIED PREVIEW"),
        ("APPLIED", "APPLIED ROLLED_BACK"),
        ("PARTIAL", "APPLIED FAILED"),
        ("PARTIAL", "APPLIED FAILED ROLLED_BACK"),
        ("PARTIAL", "FAILED ROLLED_BACK"),
        ("FAILED", "FAILED FAILED"),
        ("ROLLED_BACK", "ROLLED_BACK FAILED"),
    ],
)
def test_a_sound_run_breaks_nothing(status: str, states: str) -> None:
    assert faults(status, states) == []


@every_case(
    ("status", "states", "fault"),
    [
        ("APPLIED", "APPLIED FAILED", "Run 1 is APPLIED and has 1 failed targets."),
        ("APPLIED", "QUEUED", "Run 1 is APPLIED and has 1 unfinished targets."),
        ("APPLIED", "QUEUED APPLYING", "Run 1 is APPLIED and has 2 unfinished targets."),
        ("PARTIAL", "APPLIED", "Run 1 is PARTIAL and lacks applied or failed targets."),
        ("PARTIAL", "FAILED", "Run 1 is PARTIAL and lacks applied or failed targets."),
        ("FAILED", "FAILED APPLIED", "Run 1 is FAILED and has 1 applied targets."),
        ("ROLLED_BACK", "APPLIED", "Run 1 is ROLLED_BACK and has 1 applied targets left."),
    ],
)
def test_a_run_that_does_not_fit_its_targets_is_named(status: str, states: str, fault: str) -> None:
    assert faults(status, states) == [fault]
