"""Each promise about runs and targets, kept and broken."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.pricing.models.runs import PricingRunState, TargetState
from automation_pipeline.pricing.models.shop import Price
from automation_pipeline.pricing.rules.monitoring import (
    PricedTarget,
    RunFacts,
    TargetFacts,
    broken_invariants,
    doubly_active_rules,
    repriced,
)
from automation_pipeline_tests.tables import every_case

T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)
TIMES = {
    "queued_at": T0,
    "started_at": T0 + timedelta(seconds=5),
    "finished_at": T0 + timedelta(seconds=60),
}


def run(status: str, **times: datetime | None) -> RunFacts:
    return RunFacts(id="r1", rule_id="rule", status=PricingRunState(status), **(TIMES | times))


def targets(states: str) -> list[TargetFacts]:
    return [
        TargetFacts(
            id=f"t{number}",
            status=TargetState(state),
            applied_at=T0 if state == "APPLIED" else None,
        )
        for number, state in enumerate(states.split())
    ]


@every_case(
    ("status", "states"),
    [
        ("APPLIED", ""),
        ("APPLIED", "APPLIED APPLIED PREVIEW"),
        ("APPLIED", "APPLIED ROLLED_BACK"),
        ("PARTIAL", "APPLIED FAILED"),
        ("PARTIAL", "APPLIED FAILED ROLLED_BACK"),
        ("FAILED", "FAILED FAILED"),
        ("ROLLED_BACK", "ROLLED_BACK FAILED"),
    ],
)
def test_a_sound_run_breaks_nothing(status: str, states: str) -> None:
    assert broken_invariants(run(status), targets(states)) == []


def test_a_run_under_way_breaks_nothing() -> None:
    preview = RunFacts(id="r1", rule_id="rule", status=PricingRunState.PREVIEW)
    assert broken_invariants(preview, targets("PREVIEW")) == []
    assert (
        broken_invariants(
            run("APPLYING", finished_at=None), targets("APPLIED QUEUED APPLYING FAILED")
        )
        == []
    )


@every_case(
    ("status", "states", "fault"),
    [
        ("APPLIED", "APPLIED FAILED", "Run r1 is APPLIED and has 1 failed targets."),
        ("APPLIED", "QUEUED", "Run r1 is APPLIED and has 1 unfinished targets."),
        ("PARTIAL", "APPLIED", "Run r1 is PARTIAL and lacks applied or failed targets."),
        ("PARTIAL", "FAILED", "Run r1 is PARTIAL and lacks applied or failed targets."),
        ("FAILED", "FAILED APPLIED", "Run r1 is FAILED and has 1 applied targets."),
        ("ROLLED_BACK", "APPLIED", "Run r1 is ROLLED_BACK and has 1 applied targets left."),
    ],
)
def test_a_run_that_does_not_fit_its_targets_is_told(status: str, states: str, fault: str) -> None:
    assert broken_invariants(run(status), targets(states)) == [fault]


@every_case(
    ("times", "fault"),
    [
        ({"started_at": T0 - timedelta(seconds=1)}, "Run r1 was started before it was queued."),
        ({"finished_at": T0 + timedelta(seconds=1)}, "Run r1 was finished before it was started."),
        (
            {"started_at": None, "finished_at": T0 - timedelta(1)},
            "Run r1 was finished before it was queued.",
        ),
        ({"queued_at": None}, "Run r1 is APPLIED and was never queued."),
        ({"finished_at": None}, "Run r1 is APPLIED and does not say when it finished."),
    ],
)
def test_times_in_the_wrong_order_are_told(times: dict[str, datetime | None], fault: str) -> None:
    assert broken_invariants(run("APPLIED", **times), []) == [fault]


@every_case(
    ("target", "fault"),
    [
        (TargetFacts(id="t", status=TargetState.QUEUED, attempts=-1), "Target t has -1 attempts."),
        (
            TargetFacts(id="t", status=TargetState.QUEUED, attempts=4),
            "Target t is QUEUED after 4 retries; 3 are allowed.",
        ),
        (
            TargetFacts(id="t", status=TargetState.APPLIED),
            "Target t is APPLIED and does not say when.",
        ),
    ],
)
def test_a_target_that_breaks_its_promises_is_told(target: TargetFacts, fault: str) -> None:
    assert broken_invariants(run("APPLYING", finished_at=None), [target]) == [fault]


def test_a_failed_target_may_have_more_attempts() -> None:
    spent = TargetFacts(id="t", status=TargetState.FAILED, attempts=4)
    assert broken_invariants(run("FAILED"), [spent]) == []


def test_a_rule_has_one_active_run() -> None:
    runs = [run("QUEUED"), run("APPLIED"), run("APPLYING")]
    assert doubly_active_rules(runs[:2]) == []
    assert doubly_active_rules(runs) == ["Rule rule has 2 active runs at once."]


def test_prices_do_not_change_after_they_were_queued() -> None:
    kept = PricedTarget("t1", Price(1000, "EUR"), Price(900, "EUR"))
    bent = PricedTarget("t1", Price(1000, "EUR"), Price(800, "EUR"))
    assert repriced([kept], [kept, PricedTarget("t2", kept.before, kept.after)]) == []
    assert repriced([kept], [bent]) == ["The prices of target t1 were changed after it was queued."]
