"""What the watchdog does about a run, as a table."""

import itertools
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from dagster import DagsterRunStatus

from automation_pipeline.orchestration.aftermath import ENDED, Aftermath, aftermath, silent_since

UNENDED = [status for status in DagsterRunStatus if status not in ENDED]


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("status", sorted(ENDED, key=str))
def test_an_ended_dagster_run_closes_ours_unless_it_is_tried_again(status: DagsterRunStatus, silent: bool) -> None:
    assert aftermath(status, will_retry=False, silent=silent) is Aftermath.CLOSE
    assert aftermath(status, will_retry=True, silent=silent) is Aftermath.LEAVE


@pytest.mark.parametrize(("silent", "verdict"), [(False, Aftermath.LEAVE), (True, Aftermath.CLOSE)])
def test_a_failure_that_dagster_has_not_decided_about_is_left_for_a_while(silent: bool, verdict: Aftermath) -> None:
    assert aftermath(DagsterRunStatus.FAILURE, will_retry=None, silent=silent) is verdict


@pytest.mark.parametrize(("status", "silent"), list(itertools.product(UNENDED, [True, False])))
def test_only_a_started_and_silent_run_is_reported_dead(status: DagsterRunStatus, silent: bool) -> None:
    dead = status is DagsterRunStatus.STARTED and silent
    assert aftermath(status, will_retry=False, silent=silent) is (Aftermath.REPORT_DEAD if dead else Aftermath.LEAVE)


@pytest.mark.parametrize(("silent", "verdict"), [(True, Aftermath.CLOSE), (False, Aftermath.LEAVE)])
def test_a_run_that_dagster_does_not_know_is_closed_when_it_is_silent(silent: bool, verdict: Aftermath) -> None:
    assert aftermath(None, will_retry=False, silent=silent) is verdict


def test_a_retry_that_has_just_started_is_not_blamed_for_its_predecessors_silence() -> None:
    beat_at = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
    started = beat_at + timedelta(minutes=5)
    record = SimpleNamespace(start_time=started.timestamp())
    assert silent_since(beat_at, record) == started  # type: ignore[arg-type]
    assert silent_since(started, None) == started
