"""Tests of whole runs: failures of the environment and symptoms that operators report."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import ColumnElement, func, select

from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.queries.ledger import untranscribed, why_without_details
from automation_pipeline.automation.queries.run_details import RunProgress, progress_of, reasons_of
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.automation.schedules import reconcile_stale_runs
from automation_pipeline.automation.tables import FicheResultRow, RunRow
from automation_pipeline.core.coordination import FailoverRateLimiter, Rate
from automation_pipeline.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.fiches.models.fiches import CrmFiche
from automation_pipeline_tests.automation.due import (
    RULES,
    change,
    check_due,
    make_daily_schedule,
    occurrences,
)
from automation_pipeline_tests.automation.harness import AutomationHarness, Outcome
from automation_pipeline_tests.automation.post import delivery_services, records, relay
from automation_pipeline_tests.factories import make_launch
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, summary
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.senders import FakeMailSender, FakePublisher, FakeWebhookSender
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import NoLimit, call, transcript_of
from automation_pipeline_tests.waiting import advance_time, wait_until_async

SOLD_ON, YESTERDAY = date(2026, 5, 4), date(2026, 5, 3)
LAST_DAY = {"mode": "date_range", "dateRange": "last_24h"}
DENIED = PermanentError("The CRM refused the token (status 401).")
THROTTLED = TransientError("The CRM answered 500.")


STALL_SECONDS = 25.0


async def wait_until_budget_ends(_asked: object) -> Any:
    """Do not respond until the time budget of a stage is used up."""
    advance_time(STALL_SECONDS)
    await asyncio.Event().wait()


def counted(harness: AutomationHarness, table: type, *which: ColumnElement[bool]) -> int:
    with harness.database.reading() as session:
        return session.scalar(select(func.count()).select_from(table).where(*which)) or 0


def test_1_schedule_missing_or_inactive_leaves_no_run(harness: AutomationHarness) -> None:
    with pytest.raises(NotFoundError, match="Schedule 5 not found"):
        harness.open(5)
    paused = harness.schedule("1").id
    change(harness.database, paused, is_active=False)
    with pytest.raises(ConflictError, match=f"Schedule {paused} is not active"):
        harness.open(paused)
    assert counted(harness, RunRow) == 0


def test_2_failed_sales_lists_are_logged_and_the_mirror_is_used(harness: AutomationHarness) -> None:
    harness.add_to_crm("1", "2")
    harness.automatic()
    harness.crm.set_sales(YESTERDAY, summary("1"))
    harness.crm.set_sales(SOLD_ON, summary("2"))
    first = harness.run(ficheSelection=LAST_DAY)
    harness.clock.advance(timedelta(minutes=30))
    harness.crm.fail_always(SOLD_ON.isoformat(), THROTTLED)
    run = harness.run_schedule(first.schedule_id, "dagster-9")
    assert (run.status, run.selected_fiches) == ("completed", 2)
    assert run.error_details == {
        "revalidation_failures": [{"date": "2026-05-04", "error": str(THROTTLED)}]
    }
    assert f"Failed to revalidate 04/05/2026: {THROTTLED}" in harness.logs(run)


def test_2_1_a_rejected_api_key_is_logged_and_fails_the_fiches(harness: AutomationHarness) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    harness.crm.set_sales(SOLD_ON, summary("1"))
    first = harness.run(ficheSelection=LAST_DAY)
    harness.clock.advance(timedelta(minutes=30))
    harness.crm.refuse_everything(DENIED)
    run = harness.run_schedule(first.schedule_id, "dagster-9")
    assert (run.status, run.selected_fiches, run.failed_fiches) == ("failed", 1, 1)
    assert f"Failed to revalidate 04/05/2026: {DENIED}" in harness.logs(run)
    [outcome] = harness.outcomes(run).values()
    assert outcome.reason == "fetch_failed"
    assert str(outcome.detail).endswith(str(DENIED))


@pytest.mark.parametrize(("continue_on_error", "transcribed"), [(True, 1), (False, 0)])
def test_3_fiche_details_that_never_arrive_fail_and_can_stop_later_stages(
    continue_on_error: bool, transcribed: int, harness: AutomationHarness
) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    harness.crm.set_sales(SOLD_ON, summary("2"))
    harness.crm.fail_always("2", THROTTLED)
    harness.crm.fail_always("3", THROTTLED)
    # Adds fiche 2 to the mirror without details.
    harness.select(harness.open(harness.schedule(ficheSelection=LAST_DAY).id, "dagster-sales"))
    run = harness.run("1", "2", "3", continueOnError=continue_on_error)
    assert (run.status, run.transcriptions_run, run.audits_run) == (
        "partial",
        transcribed,
        transcribed,
    )
    message = "Fiche details not fetched (still sales-list-only cache)"
    assert harness.outcomes(run) == {
        "1": Outcome("successful"),
        "2": Outcome("failed", "fetch_failed", f"{message}: {THROTTLED}"),
        "3": Outcome("failed", "fetch_failed", f"Fiche not found in cache: {THROTTLED}"),
    }


def test_4_a_deleted_fiche_is_ignored_and_excluded_from_totals(harness: AutomationHarness) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    run = harness.run("1", "gone", continueOnError=False)
    assert (run.status, run.selected_fiches, run.total_fiches, run.ignored_fiches) == (
        "completed",
        2,
        1,
        1,
    )
    assert harness.outcomes(run)["gone"] == Outcome("ignored", "not_found", "Fiche not found (404)")


def test_5_stalled_transcriptions_fail_only_their_fiches(harness: AutomationHarness) -> None:
    harness.sell("done")
    harness.add_to_crm("stuck")
    harness.automatic()
    harness.work = replace(harness.work, transcription_seconds=STALL_SECONDS)
    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=wait_until_budget_ends)
    run = harness.run("done", "stuck")
    assert (run.status, run.transcriptions_run) == ("partial", 1)
    message = "Transcription incomplete (timeout/stall)"
    assert harness.outcomes(run) == {
        "done": Outcome("successful"),
        "stuck": Outcome("failed", "transcription_incomplete", message),
    }
    assert "Transcription timeout/stall - completed 1/2" in harness.logs(run)


@pytest.mark.parametrize(("stalled", "status"), [({"1"}, "partial"), ({"1", "2"}, "failed")])
def test_6_stalled_audits_are_recorded_per_fiche(
    stalled: set[str], status: str, harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.sell("1")
    harness.sell("2")
    harness.automatic()
    harness.work = replace(harness.work, audit_seconds=STALL_SECONDS)
    audit = harness.context.audit

    async def stalls(requested: FicheAuditRequest) -> AuditSummary:
        if requested.fiche_id not in stalled:
            return await audit(requested)
        await wait_until_async(
            lambda: (
                counted(harness, FicheResultRow, FicheResultRow.status != "pending")
                == 2 - len(stalled)
            )
        )
        return await wait_until_budget_ends(requested)

    monkeypatch.setattr(AutomationHarness, "context", replace(harness.context, audit=stalls))
    run = harness.run("1", "2")
    assert (run.status, run.failed_fiches) == (status, len(stalled))
    late = Outcome("failed", "audit_incomplete", "Audit incomplete (timeout/stall)")
    assert harness.outcomes(run) == {
        one: late if one in stalled else Outcome("successful") for one in ("1", "2")
    }


def test_7_a_run_without_workers_is_taken_over_or_ended_as_stale(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1", "2")
    harness.automatic()
    run_attempt = harness.prepare_work("1", "2")
    assert harness.run_steps(harness.take_over(run_attempt)).status == "completed"

    lost = harness.open(harness.schedule("1").id, "dagster-lost")
    harness.select(lost)
    harness.clock.advance(RULES.stale_after + timedelta(minutes=1))
    rules = replace(RULES, lost_after_seconds=-1)
    schedule_id = harness.read(lost).schedule_id
    assert reconcile_stale_runs(rules, database=harness.database, clock=harness.clock) == [
        schedule_id
    ]
    run = harness.read(lost)
    assert (run.status, run.failed_fiches) == ("failed", 1)
    assert harness.outcomes(run)["1"].reason == "interrupted"
    assert "Automation run marked stale by scheduler" in harness.logs(run)
    with harness.database.reading() as session:
        assert get_schedule(session, schedule_id).last_run_status == "failed"
    assert harness.run_schedule(schedule_id, "dagster-again").status == "completed"


class UnavailableLimiter:
    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        raise TransientError("Redis does not answer: connection refused.")


def test_7_1_a_redis_outage_does_not_end_runs(harness: AutomationHarness) -> None:
    second = NoLimit()
    harness.limiter = FailoverRateLimiter(UnavailableLimiter(), second)
    harness.add_to_crm("1", "2")
    harness.automatic()
    assert harness.run("1", "2").status == "completed"
    assert second.reserved >= 4


def test_8_failed_pusher_webhook_and_email_deliveries_are_recorded_without_changing_the_run(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    schedule = harness.schedule("1", notifyEmails=["ops@example.test"], notifyOnComplete=True)
    change(harness.database, schedule.id, webhook_url="https://hooks.example.test/run")
    run = harness.run_schedule(schedule.id)
    refusals: Sequence[Exception] = [PermanentError("The mail server refused the address.")]
    services = delivery_services(
        FakeWebhookSender([TransientError("The receiver did not answer.")]),
        FakeMailSender(list(refusals)),
        FakePublisher(is_disconnected=True),
        attempts=2,
    )
    relay(services, harness.database)
    message = {
        row.channel: (row.status, row.attempts, row.last_error) for row in records(harness.database)
    }
    assert message == {
        "webhook": ("failed", 2, "The receiver did not answer."),
        "email": ("failed", 1, "The mail server refused the address."),
    }
    assert harness.read(run) == run
    assert run.status == "completed"
    assert harness.events("automation.run.completed")


UNAVAILABLE = TransientError("The CRM answered 503.")


class ProgressProbe:
    """Records the progress of run 1 that an operator sees."""

    def __init__(self, harness: AutomationHarness) -> None:
        self._harness = harness
        self.phases: list[str | None] = []
        self.progress: list[RunProgress] = []

    async def __call__(self, _asked: object) -> None:
        with self._harness.database.reading() as session:
            self.progress.append(progress_of(session, 1))
        self.phases.append(self._harness.read(RunAttempt(1, 1)).phase)


class TestTheSchedulerNeverTriggersASchedule:
    @pytest.mark.parametrize(
        "change_it", [{"is_active": False}, {"schedule_type": "MANUAL"}], ids=["inactive", "manual"]
    )
    def test_an_inactive_or_manual_schedule_has_no_occurrences(
        self, change_it: dict[str, object], harness: AutomationHarness
    ) -> None:
        schedule = make_daily_schedule(harness.database, harness.clock)
        change(harness.database, schedule.id, **change_it)
        harness.clock.advance(timedelta(days=1))
        assert (
            check_due(harness.database, harness.clock).checked,
            occurrences(harness.database),
        ) == (
            0,
            [],
        )

    def test_fields_that_the_type_requires_are_validated_on_creation(
        self, harness: AutomationHarness
    ) -> None:
        with pytest.raises(InvalidInputError) as refused:
            harness.schedule("1", scheduleType="DAILY")
        assert "DAILY schedule requires timeOfDay" in str(refused.value.fields)

    @pytest.mark.parametrize(
        ("marked", "hours", "because"),
        [
            (True, 0, "the previous run is still at work"),
            (False, 2, "missed while the scheduler was down"),
        ],
    )
    def test_a_due_time_without_a_run_has_the_reason(
        self, marked: bool, hours: int, because: str, harness: AutomationHarness
    ) -> None:
        schedule = make_daily_schedule(harness.database, harness.clock)
        [started] = check_due(harness.database, harness.clock).triggered
        finalise_run(
            started.run_id, database=harness.database, clock=harness.clock, breakdown="over"
        )
        harness.clock.advance(timedelta(days=1, hours=hours))
        if marked:
            open_run(make_launch(schedule.id), database=harness.database, clock=harness.clock)
        check_due(harness.database, harness.clock)
        [*_, (_, run_id, result)] = occurrences(harness.database)
        assert (run_id, result) == (None, because)


class ProbedCrm(FakeFicheSource):
    """Calls the probe before it returns the details of a fiche."""

    probe: ProgressProbe

    async def details(self, fiche_id: str) -> CrmFiche:
        await self.probe(fiche_id)
        return await super().details(fiche_id)


class TestARunIsStuckInFicheDetails:
    def test_rows_show_the_fetch_progress(self, harness: AutomationHarness) -> None:
        crm = harness.crm = ProbedCrm()
        crm.at_once, crm.probe = 1, ProgressProbe(harness)
        harness.add_to_crm("1", "2")
        harness.fetch(selected(harness, "1", "2"))
        assert crm.probe.phases == ["fetching", "fetching"]
        assert [(seen.fetched, seen.selected) for seen in crm.probe.progress] == [(0, 2), (0, 2)]

    def test_the_log_and_the_mirror_show_the_failed_fiches_and_the_cause(
        self, harness: AutomationHarness
    ) -> None:
        harness.crm.set_sales(date(2026, 5, 4), summary("short"))
        sales = {"mode": "date_range", "dateRange": "last_24h"}
        harness.select(harness.open(harness.schedule(ficheSelection=sales).id, "dagster-sales"))
        for fiche_id in ("short", "absent"):
            harness.crm.fail_always(fiche_id, UNAVAILABLE)
        run = harness.run("short", "absent", "gone", retryFailed=True, maxRetries=2)
        assert harness.logs(run).count("Fiche details stalled; retrying incomplete fetches") >= 1
        with harness.database.reading() as session:
            assert why_without_details(session, ["short", "absent"]) == {
                "short": "Fiche details not fetched (still sales-list-only cache)",
                "absent": "Fiche not found in cache",
            }
            assert reasons_of(session, run.id) == {
                "failed": {"fetch_failed": 2},
                "ignored": {"not_found": 1},
            }
        assert run.total_fiches == 2, "what is not found leaves the totals"


class TestARunIsStuckInTranscription:
    def test_rows_and_counts_show_the_transcription_progress(
        self, harness: AutomationHarness
    ) -> None:
        harness.sell("1")
        harness.add_to_crm("2", calls=2)
        counts: list[dict[str, int]] = []
        probe = ProgressProbe(harness)

        async def during_call(url: str) -> None:
            await probe(url)
            with harness.database.reading() as session:
                counts.append(dict(untranscribed(session, ["1", "2"])))

        harness.speech = FakeSpeechToText(
            otherwise=transcript_of, at_once=1, during_call=during_call
        )
        run = harness.run("1", "2", runAudits=False)
        assert probe.phases == ["transcribing", "transcribing"]
        assert counts == [{"1": 0, "2": 2}, {"1": 0, "2": 1}]
        lines = [line for line in harness.logs(run) if line.startswith("Transcription progress")]
        assert lines[-1] == "Transcription progress: 2/2"
        assert "Dispatched fiche/transcribe fan-out events" in harness.logs(run)

    def test_rows_contain_the_common_causes_of_failure(self, harness: AutomationHarness) -> None:
        harness.crm.add(fiche("blank", call("1", url="")))
        harness.add_to_crm("slow", "keyless")
        harness.speech.fail_always(harness.url("slow"), TransientError("status=429 slow down"))
        harness.speech.fail_always(
            harness.url("keyless"), PermanentError("The key is refused (status 401).")
        )
        run = harness.run("blank", "slow", "keyless", runAudits=False)
        message = "Transcription incomplete: "
        assert [str(outcome.detail) for outcome in harness.outcomes(run).values()] == [
            f"{message}No recording URL available",
            f"{message}status=429 slow down",
            f"{message}The key is refused (status 401).",
        ]


class TestARunIsStuckInAudits:
    def test_missing_configurations_are_reported_per_fiche(
        self, harness: AutomationHarness
    ) -> None:
        harness.sell("1")
        harness.configure(1, "Not automatic")
        run = harness.run("1")
        assert harness.outcomes(run) == {
            "1": Outcome("failed", "no_audit_config", "No audit configs resolved")
        }

    def test_audits_are_linked_to_the_run_and_the_log_counts_them(
        self, harness: AutomationHarness
    ) -> None:
        harness.sell("1")
        harness.sell("2")
        harness.automatic()
        harness.automatic(name="Second")
        probe = ProgressProbe(harness)
        harness.model = FakeLanguageModel(during_call=probe)
        run = harness.run("1", "2")
        assert set(probe.phases) == {"auditing"}
        with harness.database.reading() as session:
            linked = (AuditRow.automation_run_id == run.id, AuditRow.is_latest)
            assert (
                list(session.scalars(select(AuditRow.status).where(*linked))) == ["completed"] * 4
            )
        assert "Running 2 configs × 2 fiches = 4 total audits" in harness.logs(run)
        assert "Audit progress: 4/4 (completed=4, failed=0)" in harness.logs(run)


class TestARunEndedPartialButCompletedWasExpected:
    def test_each_failure_reason_identifies_its_stage(self, harness: AutomationHarness) -> None:
        harness.automatic()
        harness.sell("good")
        harness.add_to_crm("lost", "mute", "far", "many", "silent")
        harness.add_to_crm("far", groupe="SUD")
        harness.add_to_crm("many", calls=9)
        harness.add_to_crm("silent", calls=0)
        harness.crm.fail_always("lost", UNAVAILABLE)
        harness.speech.fail_always(harness.url("mute"), PermanentError("No speech in this audio"))
        names = ["good", "lost", "mute", "far", "many", "silent", "gone"]
        requests = {"groupes": ["TEAM R1"], "onlyWithRecordings": True, "maxRecordingsPerFiche": 5}
        run = harness.run(ficheSelection={"mode": "manual", "ficheIds": names, **requests})
        assert (run.status, run.successful_fiches, run.failed_fiches, run.ignored_fiches) == (
            "partial",
            1,
            2,
            4,
        )
        with harness.database.reading() as session:
            assert reasons_of(session, run.id) == {
                "failed": {"fetch_failed": 1, "transcription_incomplete": 1},
                "ignored": {
                    "groupe_not_selected": 1,
                    "no_recordings": 1,
                    "not_found": 1,
                    "too_many_recordings": 1,
                },
            }
        assert "Transcription progress: 1/2" in harness.logs(run)


def selected(harness: AutomationHarness, *fiche_ids: str) -> RunAttempt:
    run_attempt = harness.open(harness.schedule(*fiche_ids).id)
    harness.select(run_attempt)
    return run_attempt
