"""What the numbers and the times of a run mean."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.pricing.models.runs import (
    RuleRun,
    TargetCounts,
    TargetState,
    success_rate,
)

T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def test_a_target_that_was_rolled_back_succeeded_and_a_cancelled_one_was_not_tried() -> None:
    counts = TargetCounts(preview=1, applied=1, rolled_back=1, failed=3, cancelled=2)
    assert (counts.succeeded, counts.not_cancelled, counts.total) == (2, 1, 6)
    assert counts.success_rate == 0.6667
    assert counts.states == {
        TargetState.PREVIEW,
        TargetState.APPLIED,
        TargetState.ROLLED_BACK,
        TargetState.FAILED,
    }


def test_nothing_tried_is_no_rate() -> None:
    assert success_rate(0, 0) is None
    assert TargetCounts(queued=1).success_rate is None


def test_waiting_and_applying_are_measured_apart() -> None:
    run = RuleRun.model_construct(
        queued_at=T0,
        started_at=T0 + timedelta(seconds=2),
        finished_at=T0 + timedelta(seconds=33.24),
    )
    assert (run.queue_ms, run.apply_ms) == (2000, 31240)
    waiting = RuleRun.model_construct(queued_at=T0, started_at=None, finished_at=None)
    assert (waiting.queue_ms, waiting.apply_ms) == (None, None)
