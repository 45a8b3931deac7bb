"""Tests of settling the fetch: which fiches end or continue, and when the run stops."""

from typing import Any

import pytest

from automation_pipeline.automation.queries.runs import StaleAttemptError
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.errors import TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.fakes.clock import FakeClock

FETCHED = "Fiche detail fetch complete (distributed)"
STOPPED = "continueOnError=false and details are missing: transcription and audits are skipped"


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AutomationHarness:
    created = AutomationHarness(database, clock)
    created.add_to_crm("with-calls")
    created.add_to_crm("without-calls", calls=0)
    created.crm.fail_always("broken", TransientError("The CRM answered 503."))
    return created


ALL_FETCHED, ONE_BROKEN = ("with-calls", "without-calls"), ("with-calls", "without-calls", "broken")
ON = {"runTranscription": True, "runAudits": True}


@pytest.mark.parametrize(
    ("fiches", "fields", "statuses", "batches"),
    [
        (ALL_FETCHED, ON, ["pending", "successful"], [0]),
        (ALL_FETCHED, ON | {"runAudits": False}, ["pending", "successful"], [0]),
        (ALL_FETCHED, ON | {"runTranscription": False}, ["pending", "successful"], [0]),
        (
            ALL_FETCHED,
            {"runTranscription": False, "runAudits": False},
            ["successful", "successful"],
            [],
        ),
        (ONE_BROKEN, ON | {"continueOnError": True}, ["pending", "successful", "failed"], [0]),
        (ONE_BROKEN, ON | {"continueOnError": False}, ["successful", "successful", "failed"], []),
        (ALL_FETCHED, ON | {"continueOnError": False}, ["pending", "successful"], [0]),
        (("with-calls", "unknown"), ON | {"continueOnError": False}, ["pending", "ignored"], [0]),
        (("broken",), ON, ["failed"], []),
    ],
)
def test_settling_decides_which_fiches_continue(
    fiches: tuple[str, ...],
    fields: dict[str, Any],
    statuses: list[str],
    batches: list[int],
    harness: AutomationHarness,
) -> None:
    run_attempt = harness.prepare_work(*fiches, **fields)
    assert harness.statuses(run_attempt) == statuses
    assert harness.settle(run_attempt) == batches
    with harness.database.reading() as session:
        row = session.get_one(RunRow, run_attempt.run_id)
        stopped = "broken" in fiches and not fields.get("continueOnError", True)
        assert (row.fetched_at, row.stopped_after_fetch) == (harness.clock.now(), stopped)
    assert harness.logs(run_attempt).count(FETCHED) == 1
    after = harness.logs(run_attempt)[harness.logs(run_attempt).index(FETCHED) :]
    assert not [line for line in after if "progress" in line]
    assert harness.logs(run_attempt).count(STOPPED) == stopped


def test_a_run_without_fiches_logs_no_progress(harness: AutomationHarness) -> None:
    run_attempt = harness.prepare_work(ficheSelection={"mode": "manual"})
    assert harness.settle(run_attempt) == []
    assert harness.logs(run_attempt)[-1] == FETCHED
    assert harness.log_details(run_attempt, FETCHED) == [
        {"selected": 0, "pending": 0, "successful": 0, "failed": 0, "ignored": 0}
    ]


def test_a_stopped_run_neither_transcribes_nor_audits(harness: AutomationHarness) -> None:
    run = harness.run(*ONE_BROKEN, continueOnError=False)
    assert (run.status, run.transcriptions_run, run.audits_run) == ("partial", 0, 0)
    assert (harness.speech.requests, harness.model.questions) == ([], [])


@pytest.mark.parametrize(("continue_on_error", "batches"), [(True, [0]), (False, [])])
def test_a_later_attempt_settles_like_the_first(
    continue_on_error: bool, batches: list[int], harness: AutomationHarness
) -> None:
    run_attempt = harness.prepare_work(*ONE_BROKEN, continueOnError=continue_on_error)
    before = harness.statuses(run_attempt)
    later = harness.take_over(run_attempt)
    assert harness.settle(later) == batches
    assert harness.statuses(later) == before
    assert harness.logs(run_attempt).count(FETCHED) == 1
    with pytest.raises(StaleAttemptError):
        harness.settle(run_attempt)


def test_a_transcription_failure_does_not_count_as_a_fetch_failure(
    harness: AutomationHarness,
) -> None:
    """A run interrupted during transcription continues: the fetch was already settled."""
    harness.add_to_crm("untranscribable")
    harness.speech.fail_always(harness.url("untranscribable"), TransientError("status=429"))
    run_attempt = harness.prepare_work(
        "with-calls", "untranscribable", continueOnError=False, runAudits=False
    )
    harness.run_work(run_attempt)
    assert harness.statuses(run_attempt) == ["successful", "failed"]
    later = harness.take_over(run_attempt)
    assert harness.settle(later) == []
    with harness.database.reading() as session:
        assert not session.get_one(RunRow, run_attempt.run_id).stopped_after_fetch


def test_settling_a_finished_run_returns_no_batches(harness: AutomationHarness) -> None:
    run_attempt = harness.prepare_work("without-calls")
    harness.finalise(run_attempt)
    assert harness.settle(run_attempt) == []
