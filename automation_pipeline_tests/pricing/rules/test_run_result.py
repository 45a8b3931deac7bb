"""A run's result counts what was tried."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.runs import (
    PricingRunState,
    RunTimes,
    TargetResult,
    TargetState,
    counts_for_success,
    run_result,
    success_rate,
)
from automation_pipeline.pricing.models.shop import FailureKind
from automation_pipeline_tests.tables import every_case

T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)
TIMES = RunTimes(T0, T0 + timedelta(seconds=2), T0 + timedelta(seconds=33.24))


def test_a_result_is_written_as_people_read_it() -> None:
    done = TargetResult(
        target_id="t1", success=True, external_id="808950810", applied_price=1299, duration=212
    )
    gone = TargetResult(target_id="t2", success=False, error="variant not found", duration=95)
    document = as_document(run_result("r1", PricingRunState.PARTIAL, TIMES, [done, done, gone]))
    assert {name: document[name] for name in document if name != "results"} == {
        "runId": "r1",
        "status": "PARTIAL",
        "totalTargets": 3,
        "appliedTargets": 2,
        "failedTargets": 1,
        "duration": 31240,
        "successRate": 0.6667,
    }
    assert document["results"][0]["appliedPrice"] == 1299
    assert document["results"][2]["error"] == "variant not found"


def test_nothing_tried_is_no_rate() -> None:
    assert success_rate(0, 0) is None
    assert (
        run_result("r1", PricingRunState.APPLIED, RunTimes(None, None, None), []).success_rate
        is None
    )


def test_waiting_and_applying_are_measured_apart() -> None:
    assert (TIMES.queue_ms, TIMES.apply_ms) == (2000, 31240)
    assert RunTimes(T0, None, None).queue_ms is None


@every_case(
    ("status", "kind", "counts"),
    [
        ("APPLIED", None, True),
        ("FAILED", "server", True),
        ("FAILED", "cancelled", False),
        ("QUEUED", None, False),
        ("PREVIEW", None, False),
        ("ROLLED_BACK", None, False),
    ],
)
def test_cancelled_and_skipped_targets_are_not_counted(
    status: str, kind: str | None, *, counts: bool
) -> None:
    assert counts_for_success(TargetState(status), FailureKind(kind) if kind else None) is counts
