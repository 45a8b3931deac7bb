"""Tests of fetching a batch: outcomes, retries, time budgets, and fenced-off attempts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update

from automation_pipeline.automation.fetching import FetchOptions
from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.queries.runs import StaleAttemptError
from automation_pipeline.automation.tables import RunPhaseRow
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.models.fiches import CrmFiche
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.automation.harness import FETCHING, AutomationHarness, Outcome
from automation_pipeline_tests.fakes.crm import FakeFicheSource
from automation_pipeline_tests.waiting import advance_time, wait_until_async

BUSY = TransientError("The CRM answered 503.")
NO_ANSWER = "Fiche not found in cache: The CRM had not answered when the time for details ended."


def opened(harness: AutomationHarness, *fiche_ids: str, **fields: Any) -> RunAttempt:
    run_attempt = harness.open(harness.schedule(*fiche_ids, **fields).id)
    harness.select(run_attempt)
    return run_attempt


def manual(*fiche_ids: str, **filters: object) -> Mapping[str, object]:
    return {"mode": "manual", "ficheIds": list(fiche_ids), **filters}


def test_every_fetch_outcome_is_recorded_as_a_row(harness: AutomationHarness) -> None:
    harness.add_to_crm("1", calls=2)
    harness.crm.fail_always("3", BUSY)
    harness.crm.fail_always("4", PermanentError("The CRM refused the token (status 403)."))
    run_attempt = opened(harness, "1", "2", "3", "4")
    assert harness.fetch(run_attempt) == {"fetched": 1, "ignored": 1, "failed": 2}
    assert harness.outcomes(run_attempt) == {
        "1": Outcome("pending"),
        "2": Outcome("ignored", "not_found", "Fiche not found (404)"),
        "3": Outcome("failed", "fetch_failed", "Fiche not found in cache: The CRM answered 503."),
        "4": Outcome(
            "failed",
            "fetch_failed",
            "Fiche not found in cache: The CRM refused the token (status 403).",
        ),
    }
    first = harness.rows(run_attempt)[0]
    assert (first.stage, first.recordings_count) == ("fetched", 2)
    assert harness.read(run_attempt).phase == "fetching"


@pytest.mark.parametrize(
    ("filters", "ceiling", "reason", "message"),
    [
        ({"groupes": ["NORD"]}, 0, "groupe_not_selected", "Groupe not selected (SUD)"),
        ({"groupes": ["SUD"]}, 0, None, None),
        ({"maxRecordingsPerFiche": 1}, 9, "too_many_recordings", "Too many recordings (2 > 1)"),
        ({"maxRecordingsPerFiche": 2}, 1, None, None),
        ({}, 1, "too_many_recordings", "Too many recordings (2 > 1)"),
        ({}, 0, None, None),
        ({"onlyWithRecordings": True}, 0, None, None),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_filters_use_details_fetched_at_any_time_in_the_run(
    known: bool,
    filters: dict[str, Any],
    ceiling: int,
    reason: str | None,
    message: str | None,
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("7", calls=2, groupe="SUD")
    harness.fetching = FetchOptions(30, ceiling)
    run_attempt = opened(harness, ficheSelection=manual("7", **filters))
    if known:
        harness.sell("7", *harness.calls("7", 2), text=None)
        harness.add_to_crm("7", calls=2, groupe="SUD")
        with harness.database.transaction() as session:
            session.scalars(select(FicheCacheRow)).one().groupe = "SUD"
    harness.fetch(run_attempt)
    assert harness.outcomes(run_attempt) == {
        "7": Outcome("ignored" if reason else "pending", reason, message)
    }
    assert harness.rows(run_attempt)[0].recordings_count == 2
    assert harness.crm.requests == ["7"]


def test_a_fiche_without_a_groupe_in_the_crm_is_not_selected(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("7", groupe=" ")
    run_attempt = opened(harness, ficheSelection=manual("7", groupes=["NORD"]))
    harness.fetch(run_attempt)
    assert harness.outcomes(run_attempt) == {
        "7": Outcome("ignored", "missing_groupe", "Missing groupe")
    }


def test_a_fiche_without_recordings_is_ignored_if_recordings_are_required(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("7", calls=0)
    run_attempt = opened(harness, ficheSelection=manual("7", onlyWithRecordings=True))
    harness.fetch(run_attempt)
    assert harness.outcomes(run_attempt) == {
        "7": Outcome("ignored", "no_recordings", "No recordings")
    }


@pytest.mark.parametrize(
    ("retry_failed", "max_retries", "asked", "status"),
    [
        (True, 2, 3, "pending"),
        (True, 1, 2, "failed"),
        (True, 0, 1, "failed"),
        (False, 2, 1, "failed"),
    ],
)
def test_failed_fetches_are_retried_up_to_the_schedules_limit(
    retry_failed: bool, max_retries: int, asked: int, status: str, harness: AutomationHarness
) -> None:
    harness.add_to_crm("1", "2")
    harness.crm.fail_once("2", BUSY, BUSY)
    run_attempt = opened(harness, "1", "2", retryFailed=retry_failed, maxRetries=max_retries)
    harness.fetch(run_attempt)
    assert harness.statuses(run_attempt) == ["pending", status]
    assert (harness.crm.requests.count("1"), harness.crm.requests.count("2")) == (1, asked)
    started = harness.log_details(run_attempt, "Dispatched fiche/fetch fan-out events")
    keys = ["automation-1-fetch-1", "automation-1-fetch-2"]
    assert started == [{"count": 2, "retry": 0, "keys": keys}]
    stalled = harness.log_details(run_attempt, "Fiche details stalled; retrying incomplete fetches")
    retried = [key for line in stalled for key in line["keys"]]  # type: ignore[attr-defined]
    assert retried == [f"automation-1-fetch-2-retry-{number}" for number in range(1, asked)]
    assert sum(line["count"] for line in stalled) == len(retried)  # type: ignore[misc]
    assert max((line["retry"] for line in stalled), default=0) == len(retried)  # type: ignore[type-var]


def test_a_hanging_fiche_affects_neither_retries_nor_errors_of_others(
    harness: AutomationHarness,
) -> None:
    """Regression: one hanging fiche blocked the retries and results of all others."""
    harness.crm = SilentFor(
        lambda: (
            [row.stage for row in harness.rows(run_attempt)] == ["selected", "fetched", "fetched"]
        )
    )
    harness.add_to_crm("silent", "recovers")
    harness.crm.fail_once("recovers", BUSY)
    harness.crm.fail_always("fails", BUSY)
    run_attempt = opened(harness, "silent", "recovers", "fails", retryFailed=True, maxRetries=1)
    assert harness.fetch(run_attempt) == {"fetched": 1, "failed": 2}
    assert harness.outcomes(run_attempt) == {
        "silent": Outcome("failed", "fetch_incomplete", NO_ANSWER),
        "recovers": Outcome("pending"),
        "fails": Outcome(
            "failed", "fetch_failed", "Fiche not found in cache: The CRM answered 503."
        ),
    }
    assert (harness.crm.requests.count("recovers"), harness.crm.requests.count("fails")) == (2, 2)


class SilentFor(FakeFicheSource):
    """Never answers for one fiche; the time budget ends when the others are done."""

    def __init__(self, others_are_done: Callable[[], bool]) -> None:
        super().__init__()
        self.others_are_done = others_are_done

    async def details(self, fiche_id: str) -> CrmFiche:
        if fiche_id == "silent":
            await wait_until_async(self.others_are_done)
            advance_time(FETCHING.budget_seconds)
            await asyncio.Event().wait()
        return await super().details(fiche_id)


def test_a_retry_is_logged_while_it_runs(harness: AutomationHarness) -> None:
    message = "Fiche details stalled; retrying incomplete fetches"

    class AnswersAfterTheLog(FakeFicheSource):
        async def details(self, fiche_id: str) -> CrmFiche:
            if self.requests:
                await wait_until_async(lambda: message in harness.logs(run_attempt))
            return await super().details(fiche_id)

    harness.crm = AnswersAfterTheLog()
    harness.add_to_crm("1")
    harness.crm.fail_once("1", BUSY)
    run_attempt = opened(harness, "1", retryFailed=True, maxRetries=1)
    assert harness.fetch(run_attempt) == {"fetched": 1}
    assert harness.log_details(run_attempt, message) == [
        {"count": 1, "retry": 1, "keys": ["automation-1-fetch-1-retry-1"]}
    ]


class SequentialSource(FakeFicheSource):
    """Answers for a fiche when the previous one is stored, after some time has passed."""

    def __init__(self, harness: AutomationHarness, seconds: Sequence[float]) -> None:
        super().__init__()
        self.at_once, self._harness = 1, harness
        self._seconds = iter(seconds)

    async def details(self, fiche_id: str) -> CrmFiche:
        rows = self._harness.rows(RunAttempt(1, 1))
        stored = sum(row.fiche_id < fiche_id for row in rows)
        await wait_until_async(
            lambda: (
                sum(row.stage == "fetched" for row in self._harness.rows(RunAttempt(1, 1)))
                == stored
            )
        )
        self._harness.clock.advance(timedelta(seconds=next(self._seconds)))
        return await super().details(fiche_id)


def test_progress_is_logged_once_per_poll_interval(harness: AutomationHarness) -> None:
    fiches = ["1", "2", "3", "4"]
    harness.crm = SequentialSource(harness, [0, 18, 2, 1])
    harness.add_to_crm(*fiches)
    run_attempt = opened(harness, *fiches)
    harness.fetch(run_attempt)
    lines = [line for line in harness.logs(run_attempt) if "progress" in line]
    assert lines == ["Fiche details progress: 1/4", "Fiche details progress: 3/4"]


def test_fetches_that_exceed_the_time_budget_fail(harness: AutomationHarness) -> None:
    harness.crm = SilentFor(lambda: harness.rows(run_attempt)[0].stage == "fetched")
    harness.add_to_crm("1", "silent")
    run_attempt = opened(harness, "1", "silent")
    assert harness.fetch(run_attempt) == {"fetched": 1, "failed": 1}
    assert harness.outcomes(run_attempt) == {
        "1": Outcome("pending"),
        "silent": Outcome("failed", "fetch_incomplete", NO_ANSWER),
    }


def test_the_fetch_budget_counts_from_the_start_of_the_run(harness: AutomationHarness) -> None:
    harness.add_to_crm("1")
    run_attempt = opened(harness, "1")
    with harness.database.transaction() as session:
        at = database_time(session) - timedelta(seconds=FETCHING.budget_seconds)
        session.execute(update(RunPhaseRow).values(entered_at=at))
    assert harness.fetch(run_attempt) == {"failed": 1}
    assert harness.outcomes(run_attempt)["1"].reason == "fetch_incomplete"


def test_repeating_a_batch_does_not_fetch_completed_fiches_again(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1", "2")
    run_attempt = opened(harness, "1", "2", "3")
    harness.crm.fail_once("3", ZeroDivisionError())  # type: ignore[arg-type]  a bug, on purpose
    with pytest.raises(ZeroDivisionError):
        harness.fetch(run_attempt)
    harness.fetch(run_attempt)
    assert sorted(harness.crm.requests) == ["1", "2", "3", "3"]
    assert harness.statuses(run_attempt) == ["pending", "pending", "ignored"]
    assert harness.fetch(run_attempt) == {}


def test_a_fenced_off_attempt_writes_nothing(harness: AutomationHarness) -> None:
    harness.add_to_crm("1")
    old = opened(harness, "1", "2", "3")
    harness.take_over(old)
    with pytest.raises(StaleAttemptError):
        harness.fetch(old)
    assert harness.statuses(old) == ["pending"] * 3
    with harness.database.reading() as session:
        assert session.scalar(select(func.count()).select_from(FicheCacheRow)) == 0
