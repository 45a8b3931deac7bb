"""The seed's failure modes, each with what happens now: nothing hangs, and every fiche says how it
ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import ColumnElement, func, select

from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.schedules import reconcile_stale_runs
from automation_pipeline.automation.tables import FicheResultRow, RunRow
from automation_pipeline.core.coordination import FailoverRateLimiter, Rate
from automation_pipeline.core.errors import (
    ConflictError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.bench import Bench, Outcome
from automation_pipeline_tests.automation.due import RULES, change
from automation_pipeline_tests.automation.post import a_post_office, records, relay
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import summary
from automation_pipeline_tests.fakes.post import FakeMailSender, FakePublisher, FakeWebhookSender
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.bench import NoLimit, transcript_of
from automation_pipeline_tests.waiting import come_true, leap

TODAY, YESTERDAY = date(2026, 5, 4), date(2026, 5, 3)
LAST_DAY = {"mode": "date_range", "dateRange": "last_24h"}
REFUSED = PermanentError("The CRM refused our token (status 401).")
BUSY = TransientError("The CRM answered 500.")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


STALL_SECONDS = 25.0


async def never(_asked: object) -> Any:
    """Silent until the time that a stage has is over."""
    leap(STALL_SECONDS)
    await asyncio.Event().wait()


def counted(bench: Bench, table: type, *which: ColumnElement[bool]) -> int:
    with bench.database.reading() as session:
        return session.scalar(select(func.count()).select_from(table).where(*which)) or 0


def test_1_schedule_missing_or_inactive_leaves_no_run(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="Schedule 5 not found"):
        bench.open(5)
    paused = bench.schedule("1").id
    change(bench.database, paused, is_active=False)
    with pytest.raises(ConflictError, match=f"Schedule {paused} is not active"):
        bench.open(paused)
    assert counted(bench, RunRow) == 0


def test_2_failed_sales_lists_are_logged_and_the_mirror_is_used(bench: Bench) -> None:
    bench.offer("1", "2")
    bench.automatic()
    bench.crm.sell(YESTERDAY, summary("1"))
    bench.crm.sell(TODAY, summary("2"))
    first = bench.run(ficheSelection=LAST_DAY)
    bench.clock.pass_time(timedelta(minutes=30))
    bench.crm.fail_always(TODAY.isoformat(), BUSY)
    run = bench.carry_out(first.schedule_id, "dagster-9")
    assert (run.status, run.selected_fiches) == ("completed", 2)
    assert run.error_details == {
        "revalidation_failures": [{"date": "2026-05-04", "error": str(BUSY)}]
    }
    assert f"Failed to revalidate 04/05/2026: {BUSY}" in bench.logs(run)


def test_2_1_a_refused_key_is_in_the_log_and_the_fiches_fail_with_it(bench: Bench) -> None:
    bench.offer("1")
    bench.automatic()
    bench.crm.sell(TODAY, summary("1"))
    first = bench.run(ficheSelection=LAST_DAY)
    bench.clock.pass_time(timedelta(minutes=30))
    bench.crm.refuse_everything(REFUSED)
    run = bench.carry_out(first.schedule_id, "dagster-9")
    assert (run.status, run.selected_fiches, run.failed_fiches) == ("failed", 1, 1)
    assert f"Failed to revalidate 04/05/2026: {REFUSED}" in bench.logs(run)
    [outcome] = bench.outcomes(run).values()
    assert outcome.reason == "fetch_failed"
    assert str(outcome.words).endswith(str(REFUSED))


@pytest.mark.parametrize(("go_on", "transcribed"), [(True, 1), (False, 0)])
def test_3_fiche_details_that_never_come_fail_and_may_stop_the_later_stages(
    go_on: bool, transcribed: int, bench: Bench
) -> None:
    bench.offer("1")
    bench.automatic()
    bench.crm.sell(TODAY, summary("2"))
    bench.crm.fail_always("2", BUSY)
    bench.crm.fail_always("3", BUSY)
    bench.select(
        bench.open(bench.schedule(ficheSelection=LAST_DAY).id, "dagster-sales")
    )  # mirrors 2 in short
    run = bench.run("1", "2", "3", continueOnError=go_on)
    assert (run.status, run.transcriptions_run, run.audits_run) == (
        "partial",
        transcribed,
        transcribed,
    )
    in_short = "Fiche details not fetched (still sales-list-only cache)"
    assert bench.outcomes(run) == {
        "1": Outcome("successful"),
        "2": Outcome("failed", "fetch_failed", f"{in_short}: {BUSY}"),
        "3": Outcome("failed", "fetch_failed", f"Fiche not found in cache: {BUSY}"),
    }


def test_4_a_deleted_fiche_is_ignored_and_not_in_the_totals(bench: Bench) -> None:
    bench.offer("1")
    bench.automatic()
    run = bench.run("1", "gone", continueOnError=False)
    assert (run.status, run.selected_fiches, run.total_fiches, run.ignored_fiches) == (
        "completed",
        2,
        1,
        1,
    )
    assert bench.outcomes(run)["gone"] == Outcome("ignored", "not_found", "Fiche not found (404)")


def test_5_transcriptions_that_stall_fail_their_fiches_and_no_others(bench: Bench) -> None:
    bench.sell("done")
    bench.offer("stuck")
    bench.automatic()
    bench.work = replace(bench.work, transcription_seconds=STALL_SECONDS)
    bench.speech = FakeSpeechToText(otherwise=transcript_of, meanwhile=never)
    run = bench.run("done", "stuck")
    assert (run.status, run.transcriptions_run) == ("partial", 1)
    words = "Transcription incomplete (timeout/stall)"
    assert bench.outcomes(run) == {
        "done": Outcome("successful"),
        "stuck": Outcome("failed", "transcription_incomplete", words),
    }
    assert "Transcription timeout/stall - completed 1/2" in bench.logs(run)


@pytest.mark.parametrize(("stuck", "status"), [({"1"}, "partial"), ({"1", "2"}, "failed")])
def test_6_audits_that_stall_are_recorded_fiche_by_fiche(
    stuck: set[str], status: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.sell("1")
    bench.sell("2")
    bench.automatic()
    bench.work = replace(bench.work, audit_seconds=STALL_SECONDS)
    audit = bench.context.audit

    async def stalls(requested: FicheAuditRequest) -> AuditSummary:
        if requested.fiche_id not in stuck:
            return await audit(requested)
        await come_true(
            lambda: (
                counted(bench, FicheResultRow, FicheResultRow.status != "pending") == 2 - len(stuck)
            )
        )
        return await never(requested)

    monkeypatch.setattr(Bench, "context", replace(bench.context, audit=stalls))
    run = bench.run("1", "2")
    assert (run.status, run.failed_fiches) == (status, len(stuck))
    late = Outcome("failed", "audit_incomplete", "Audit incomplete (timeout/stall)")
    assert bench.outcomes(run) == {
        one: late if one in stuck else Outcome("successful") for one in ("1", "2")
    }


def test_7_a_run_without_workers_is_taken_over_or_ended_as_stale(
    bench: Bench,
) -> None:
    bench.offer("1", "2")
    bench.automatic()
    ticket = bench.until_work("1", "2")
    assert bench.go_through(bench.take_over(ticket)).status == "completed"

    lost = bench.open(bench.schedule("1").id, "dagster-lost")
    bench.select(lost)
    bench.clock.pass_time(RULES.stale_after + timedelta(minutes=1))
    rules = replace(RULES, lost_after_seconds=-1)
    schedule_id = bench.read(lost).schedule_id
    assert reconcile_stale_runs(rules, database=bench.database, clock=bench.clock) == [schedule_id]
    run = bench.read(lost)
    assert (run.status, run.failed_fiches) == ("failed", 1)
    assert bench.outcomes(run)["1"].reason == "interrupted"
    assert "Automation run marked stale by scheduler" in bench.logs(run)
    with bench.database.reading() as session:
        assert get_schedule(session, schedule_id).last_run_status == "failed"
    assert bench.carry_out(schedule_id, "dagster-again").status == "completed"


class Down:
    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        raise TransientError("Redis does not answer: connection refused.")


def test_7_1_redis_that_is_down_ends_nothing(bench: Bench) -> None:
    second = NoLimit()
    bench.limiter = FailoverRateLimiter(Down(), second)
    bench.offer("1", "2")
    bench.automatic()
    assert bench.run("1", "2").status == "completed"
    assert second.reserved >= 4


def test_8_pusher_webhook_and_email_that_fail_are_on_record_and_the_run_is_as_it_was(
    bench: Bench,
) -> None:
    bench.offer("1")
    bench.automatic()
    schedule = bench.schedule("1", notifyEmails=["ops@example.test"], notifyOnComplete=True)
    change(bench.database, schedule.id, webhook_url="https://hooks.example.test/run")
    run = bench.carry_out(schedule.id)
    refusals: Sequence[Exception] = [PermanentError("The mail server refused the address.")]
    post = a_post_office(
        FakeWebhookSender([TransientError("The receiver did not answer.")]),
        FakeMailSender(list(refusals)),
        FakePublisher(away=True),
        attempts=2,
    )
    relay(post, bench.database)
    message = {
        row.channel: (row.status, row.attempts, row.last_error) for row in records(bench.database)
    }
    assert message == {
        "webhook": ("failed", 2, "The receiver did not answer."),
        "email": ("failed", 1, "The mail server refused the address."),
    }
    assert bench.read(run) == run
    assert run.status == "completed"
    assert bench.events("automation.run.completed")
