"""Tests of auditing a fiche, and of the steps that transcribe and audit a batch."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import insert, update

from automation_pipeline.audits.models.audits import AuditStatus, AuditSummary, FicheAuditRequest
from automation_pipeline.audits.models.chat import Question
from automation_pipeline.automation import transcribing
from automation_pipeline.automation.auditing import audit_target
from automation_pipeline.automation.models.runs import LedgerMove, RunAttempt
from automation_pipeline.automation.queries.run_details import progress_of
from automation_pipeline.automation.queries.runs import StaleAttemptError
from automation_pipeline.automation.runs import cancel_run
from automation_pipeline.automation.tables import FicheResultRow, RunPhaseRow
from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.storage.database import DatabaseFullError
from automation_pipeline.storage.statements import database_time
from automation_pipeline.transcription.models import TranscriptionRunRequest
from automation_pipeline_tests.automation.harness import AutomationHarness, Outcome
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.waiting import advance_time, wait_until_async

LOST = TransientError("The model did not answer.")
End = AuditStatus | str | AutomationError


class ScriptedAudits:
    """Ends each audit according to the script of its configuration; a string is the error of a
    failed audit."""

    def __init__(self, **scripts: Sequence[End]) -> None:
        self.requests: list[FicheAuditRequest] = []
        self._scripts = {
            int(name.removeprefix("config_")): list(script) for name, script in scripts.items()
        }

    @property
    def keys(self) -> list[str]:
        return [
            request.tracking_id.removeprefix("automation-1-audit-7-") for request in self.requests
        ]

    async def __call__(self, request: FicheAuditRequest) -> AuditSummary:
        self.requests.append(request)
        end = self._scripts[request.audit_config_id].pop(0)
        if isinstance(end, AutomationError):
            raise end
        status, error = (end, None) if isinstance(end, AuditStatus) else (AuditStatus.FAILED, end)
        if error == MISSING:
            status = AuditStatus.INCOMPLETE
        return AuditSummary(
            audit_id=1, tracking_id=request.tracking_id, fiche_id=request.fiche_id,
            audit_config_id=request.audit_config_id,
            status=status, niveau="PENDING", score_percentage=0, steps=1, done=1, failed=0, error=error,
        )  # fmt: skip


def audited(
    harness: AutomationHarness, audits: ScriptedAudits, *config_ids: int, **fields: object
) -> LedgerMove:
    harness.add_to_crm("7")
    run_attempt = harness.prepare_work("7", **fields)
    context = replace(harness.context, audit=audits)
    return asyncio.run(
        audit_target(run_attempt, "7", config_ids, plan=harness.plan(run_attempt), context=context)
    )


DONE, AT_WORK = AuditStatus.COMPLETED, AuditStatus.RUNNING
MISSING = "Audit incomplete: 17 of 18 steps judged: The model is away."


@pytest.mark.parametrize(
    ("retries", "script", "keys", "status", "message"),
    [
        (0, [DONE], ["4"], "successful", None),
        (2, [DONE], ["4"], "successful", None),
        (0, ["Refused"], ["4"], "failed", "Refused"),
        (1, ["Refused", DONE], ["4", "4-retry-1"], "successful", None),
        (2, ["Refused", "Again", "Still"], ["4", "4-retry-1", "4-retry-2"], "failed", "Still"),
        (0, [LOST, DONE], ["4", "4"], "successful", None),
        (0, [LOST, LOST], ["4", "4"], "failed", f"Audit incomplete: {LOST}"),
        (0, [LOST, "Refused"], ["4", "4"], "failed", "Refused"),
        (2, [LOST, LOST, DONE], ["4", "4", "4"], "successful", None),
        (2, [LOST, "Refused", DONE], ["4", "4", "4-retry-1"], "successful", None),
        (0, [AT_WORK, DONE], ["4", "4"], "successful", None),
        (0, [MISSING, DONE], ["4", "4"], "successful", None),
        (0, [MISSING, MISSING], ["4", "4"], "failed", MISSING),
        (2, [MISSING, "Refused", DONE], ["4", "4", "4-retry-1"], "successful", None),
        (0, [AT_WORK, AT_WORK], ["4", "4"], "failed", "Audit incomplete (timeout/stall)"),
    ],
)
def test_failed_audits_follow_the_retry_setting_and_missing_audits_get_one_retry(
    retries: int,
    script: list[End],
    keys: list[str],
    status: str,
    message: str | None,
    harness: AutomationHarness,
) -> None:
    audits = ScriptedAudits(config_4=script)
    move = audited(harness, audits, 4, retryFailed=retries > 0, maxRetries=retries)
    assert (audits.keys, move.status, move.error) == (keys, status, message)


def test_max_retries_is_ignored_when_retry_failed_is_off(harness: AutomationHarness) -> None:
    audits = ScriptedAudits(config_4=["Refused"])
    assert audited(harness, audits, 4, retryFailed=False, maxRetries=3).error == "Refused"


def test_a_failed_configuration_does_not_affect_the_others(
    harness: AutomationHarness,
) -> None:
    audits = ScriptedAudits(config_9=["Nine refused"], config_4=[DONE], config_6=["Six refused"])
    move = audited(harness, audits, 9, 4, 6)
    assert audits.keys == ["9", "4", "6"]
    assert (move.status, move.reason, move.error, move.audits) == (
        "failed",
        "audit_failed",
        "Nine refused",
        3,
    )


@pytest.mark.parametrize("retries", [0, 2])
def test_a_database_error_does_not_fail_the_audit(retries: int, harness: AutomationHarness) -> None:
    fields, full = (
        {"retryFailed": retries > 0, "maxRetries": retries},
        DatabaseFullError("It cannot grow."),
    )
    assert (
        audited(harness, ScriptedAudits(config_4=[full, DONE]), 4, **fields).status == "successful"
    )
    audits = ScriptedAudits(config_4=[full] * (1 + max(1, retries)))
    with pytest.raises(DatabaseFullError):
        audited(harness, audits, 4, **fields)
    assert set(audits.keys) == {"4"}, "the next attempt of the step repeats the same request"


def test_an_incomplete_audit_fails_its_fiche_and_is_not_counted(
    harness: AutomationHarness,
) -> None:
    move = audited(harness, ScriptedAudits(config_4=[MISSING, MISSING], config_5=[DONE]), 4, 5)
    assert (move.status, move.reason, move.error, move.audits) == (
        "failed",
        "audit_incomplete",
        MISSING,
        1,
    )


def test_an_audit_stores_its_run_and_the_selections_reading_mode(
    harness: AutomationHarness,
) -> None:
    audits = ScriptedAudits(config_4=[DONE])
    audited(
        harness, audits, 4, ficheSelection={"mode": "manual", "ficheIds": ["7"], "useRlm": True}
    )
    [request] = audits.requests
    assert (request.run_id, request.schedule_id, request.trigger_source, request.use_rlm) == (
        1,
        1,
        "automation",
        True,
    )


def test_an_audit_of_a_deleted_configuration_is_incomplete(harness: AutomationHarness) -> None:
    gone = NotFoundError("Audit configuration 4 not found")
    move = audited(harness, ScriptedAudits(config_4=[gone, gone]), 4)
    assert (move.reason, move.audits) == ("audit_incomplete", 0)
    assert move.error == f"Audit incomplete: {gone}"


SILENT = Outcome("failed", "transcription_incomplete", "Transcription incomplete (timeout/stall)")
UNAUDITED = Outcome("failed", "audit_incomplete", "Audit incomplete (timeout/stall)")


def test_concurrent_audits_stay_within_the_limit(harness: AutomationHarness) -> None:
    fiches, at_once, most = [str(number) for number in range(6)], 0, 0
    harness.add_to_crm(*fiches)
    harness.automatic()
    run_attempt = harness.prepare_work(*fiches, runTranscription=False)
    audit = harness.context.audit

    async def counted(requested: FicheAuditRequest) -> AuditSummary:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            return await audit(requested)
        finally:
            at_once -= 1

    harness.work = replace(harness.work, audits_at_once=2)
    ended = harness.work_batch(run_attempt, audit=counted)
    assert (ended, most) == ({"successful": 6}, 2)


@pytest.mark.parametrize(
    ("fields", "phase", "transcribed", "audits"),
    [
        ({"runAudits": False}, "transcribing", True, 0),
        ({"runTranscription": False}, "auditing", False, 1),
        ({}, "auditing", True, 1),
    ],
)
def test_only_the_stages_of_the_schedule_run(
    fields: dict[str, object],
    phase: str,
    transcribed: bool,
    audits: int,
    harness: AutomationHarness,
) -> None:
    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1", **fields)
    assert harness.run_work(run_attempt) == {"successful": 1}
    assert harness.read(run_attempt).phase == phase
    assert [(row.transcribed, row.audits) for row in harness.rows(run_attempt)] == [
        (transcribed, audits)
    ]


def test_specific_configurations_precede_automatic_ones_without_duplicates(
    harness: AutomationHarness,
) -> None:
    harness.sell("1")
    automatic, both, named = (
        harness.automatic(),
        harness.automatic(name="Both"),
        harness.configure(1, "Named"),
    )
    requested_configs: list[int] = []
    run_attempt = harness.prepare_work("1", specificAuditConfigs=[named, both])
    audit = harness.context.audit

    async def record_request(requested: FicheAuditRequest) -> AuditSummary:
        requested_configs.append(requested.audit_config_id)
        return await audit(requested)

    harness.work_batch(run_attempt, audit=record_request)
    assert requested_configs == [named, both, automatic]
    assert "Running 3 configs × 1 fiches = 3 total audits" in harness.logs(run_attempt)


@pytest.mark.parametrize("automatic", [True, False])
def test_every_fiche_gets_the_error_about_missing_configurations(
    automatic: bool, harness: AutomationHarness
) -> None:
    harness.add_to_crm("1", "2")
    if not automatic:
        harness.automatic()
    run_attempt = harness.prepare_work("1", "2", useAutomaticAudits=automatic)
    harness.run_work(run_attempt)
    assert set(harness.outcomes(run_attempt).values()) == {
        Outcome("failed", "no_audit_config", "No audit configs resolved")
    }


def test_fiches_with_failed_transcriptions_are_skipped_and_others_are_audited(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1", "2")
    harness.automatic()
    harness.speech.fail_always(harness.url("1"), PermanentError("No speech in this audio"))
    run_attempt = harness.prepare_work("1", "2")
    harness.run_work(run_attempt)
    message = "Transcription incomplete: No speech in this audio"
    assert harness.outcomes(run_attempt) == {
        "1": Outcome("failed", "transcription_incomplete", message),
        "2": Outcome("successful"),
    }
    assert harness.audits() == 1


def test_fiches_over_the_transcription_budget_fail_with_a_stable_message(
    harness: AutomationHarness,
) -> None:
    async def never(_run_ids: Sequence[str], _own: Sequence[str]) -> object:
        advance_time(harness.work.transcription_seconds)
        return await asyncio.Event().wait()

    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2")
    harness.work_batch(run_attempt, transcribe=never)
    assert harness.outcomes(run_attempt) == {"1": SILENT, "2": SILENT}


def test_fiches_over_the_audit_budget_fail_and_earlier_results_stay(
    harness: AutomationHarness,
) -> None:
    harness.sell("1")
    harness.sell("2")
    harness.automatic()
    run_attempt = harness.prepare_work("1", "2")
    audit = harness.context.audit

    async def second_never_ends(requested: FicheAuditRequest) -> AuditSummary:
        if requested.fiche_id == "1":
            return await audit(requested)
        await wait_until_async(lambda: harness.statuses(run_attempt)[0] == "successful")
        advance_time(harness.work.audit_seconds)
        return await asyncio.Event().wait()  # type: ignore[return-value]

    harness.work_batch(run_attempt, audit=second_never_ends)
    assert harness.outcomes(run_attempt) == {"1": Outcome("successful"), "2": UNAUDITED}


def _cancel(harness: AutomationHarness, run_attempt: RunAttempt) -> None:
    cancel_run(run_attempt.run_id, database=harness.database, clock=harness.clock)


@pytest.mark.parametrize(
    ("stop", "status"), [(AutomationHarness.take_over, "pending"), (_cancel, "ignored")]
)
def test_a_newer_attempt_or_a_cancellation_stops_work_in_progress(
    stop: type, status: str, harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcribing, "FENCE_CHECK_SECONDS", 0.02)
    stopped: list[str] = []

    async def audit_endlessly(requested: FicheAuditRequest) -> AuditSummary:
        try:
            await asyncio.to_thread(stop, harness, run_attempt)
            return await asyncio.Event().wait()  # type: ignore[return-value]
        finally:
            stopped.append(requested.fiche_id)

    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1")
    with pytest.raises(StaleAttemptError):
        harness.work_batch(run_attempt, audit=audit_endlessly)
    assert (stopped, harness.statuses(run_attempt)) == (["1"], [status])


def test_a_fenced_off_attempt_writes_no_result(harness: AutomationHarness) -> None:
    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1")
    audit = harness.context.audit

    async def fenced_off_audit(requested: FicheAuditRequest) -> AuditSummary:
        status = await audit(requested)
        await asyncio.to_thread(harness.take_over, run_attempt)
        return status

    with pytest.raises(StaleAttemptError):
        harness.work_batch(run_attempt, audit=fenced_off_audit)
    assert harness.statuses(run_attempt) == ["pending"]


def test_a_bug_is_raised_and_not_recorded_as_an_outcome(harness: AutomationHarness) -> None:
    async def broken(_request: FicheAuditRequest) -> AuditSummary:
        raise ZeroDivisionError

    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1")
    with pytest.raises(ZeroDivisionError):
        harness.work_batch(run_attempt, audit=broken)
    assert harness.statuses(run_attempt) == ["pending"]


def test_progress_is_recorded_with_the_outcomes(harness: AutomationHarness) -> None:
    harness.sell("1")
    harness.add_to_crm("2")
    harness.automatic()
    harness.speech.fail_always(harness.url("2"), PermanentError("No speech in this audio"))
    harness.run_work(harness.prepare_work("1", "2"))
    last = harness.events("automation.run.progress")[-1]
    assert (last["successful"], last["failed"], last["audits"]) == (1, 1, 1)
    assert (last["current_phase"], last["progress_percentage"]) == ("auditing", 100)


def test_existing_transcripts_and_audits_count_after_the_audit_budget(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    harness.automatic(name="Other")
    run_attempt = harness.prepare_work("1")
    questions = 0

    async def second_never_ends(_prompt: Question) -> None:
        nonlocal questions
        questions += 1
        if questions > 1:
            advance_time(25)
            await asyncio.Event().wait()

    harness.model = FakeLanguageModel(during_call=second_never_ends)
    harness.work = replace(harness.work, audit_seconds=25)
    harness.run_work(run_attempt)
    assert harness.outcomes(run_attempt) == {"1": UNAUDITED}
    assert [(row.transcribed, row.audits) for row in harness.rows(run_attempt)] == [(True, 1)]
    ended = harness.finalise(run_attempt)
    assert (ended.transcriptions_run, ended.audits_run) == (1, 1)


def test_progress_counts_expected_audits_and_waits_are_logged(
    harness: AutomationHarness,
) -> None:
    """Regression: progress was relative to the started audits, and log lines that operators
    search for were missing."""
    harness.sell("1")
    harness.sell("2")
    harness.add_to_crm("3")
    harness.add_to_crm("4", calls=0)
    harness.speech.fail_always(harness.url("3"), PermanentError("No speech in this audio"))
    done, stalls = harness.automatic(), harness.automatic(name="Stalls")
    run_attempt = harness.prepare_work("1", "2", "3", "4")
    harness.work = replace(harness.work, audit_seconds=200, audit_poll_seconds=20)
    audit = harness.context.audit

    def count_polls() -> int:
        return sum(line.startswith("Audit progress") for line in harness.logs(run_attempt))

    async def hang_on_one_audit(requested: FicheAuditRequest) -> AuditSummary:
        if (requested.fiche_id, requested.audit_config_id) != ("2", stalls):
            return await audit(requested)
        await wait_until_async(lambda: harness.audits() == 3)
        for _ in range(10):
            polls = count_polls()
            await asyncio.to_thread(lambda: None)  # the poll has read its counts
            await asyncio.sleep(0.01)  # the poll sleeps
            advance_time(20)
            await wait_until_async(lambda polls=polls: count_polls() > polls)
        await asyncio.to_thread(lambda: None)
        await asyncio.sleep(0.01)
        advance_time(20)
        return await asyncio.Event().wait()  # type: ignore[return-value]

    harness.work_batch(run_attempt, audit=hang_on_one_audit, threads=1)
    assert done
    logs = harness.logs(run_attempt)
    assert "Audit progress: 3/4 (completed=3, failed=0)" in logs
    polls, stalls = (
        sum(line.startswith(text) for line in logs) for text in ("Audit progress", "Audits stalled")
    )
    assert 1 <= stalls <= polls / 3, "one warning per three polls without progress"
    assert "Audits stalled; extending wait" in logs
    assert "Audit timeout/stall - finished 3/4 (completed=3, failed=0)" in logs
    assert harness.outcomes(run_attempt)["2"] == UNAUDITED
    assert [
        note for note in harness.notes(run_attempt) if note.startswith(("WAITING", "DONE"))
    ] == [
        "WAITING: fiche-details gate (polling DB for full details)",
        "DONE: fiche-details-gate",
        "WAITING: transcription gate (polling DB for has_transcription)",
        "DONE: transcription-gate",
        "WAITING: audit gate (polling DB for audit completion)",
        "DONE: audit-gate",
    ]


def test_a_missing_audit_is_requested_again_without_delaying_others(
    harness: AutomationHarness,
) -> None:
    harness.sell("1")
    first, second = harness.automatic(), harness.automatic(name="Second")
    run_attempt = harness.prepare_work("1")
    harness.work = replace(harness.work, audit_poll_seconds=5)
    audit, requested_configs = harness.context.audit, list[int]()

    async def hang_on_first_audit(requested: FicheAuditRequest) -> AuditSummary:
        requested_configs.append(requested.audit_config_id)
        if requested_configs.count(first) == 1 and requested.audit_config_id == first:
            advance_time(16)
            return await asyncio.Event().wait()  # type: ignore[return-value]
        return await audit(requested)

    harness.work_batch(run_attempt, audit=hang_on_first_audit)
    assert sorted(requested_configs) == [first, first, second]
    assert harness.statuses(run_attempt) == ["successful"]


def put_into_next_batch(harness: AutomationHarness, fiche_id: str) -> None:
    with harness.database.transaction() as session:
        of_fiche = update(FicheResultRow).where(FicheResultRow.fiche_id == fiche_id)
        session.execute(of_fiche.values(batch=1))


def test_the_next_batch_is_transcribed_during_the_audits_of_a_batch(
    harness: AutomationHarness,
) -> None:
    harness.sell("1")
    harness.add_to_crm("2")
    harness.automatic()
    run_attempt = harness.prepare_work("1", "2")
    put_into_next_batch(harness, "2")
    harness.work = replace(harness.work, transcribes_ahead=True)
    started_ids: list[str] = []
    audit, stops = harness.context.audit, list[asyncio.Event]()

    async def begin(requests: Sequence[TranscriptionRunRequest]) -> object:
        started_ids.extend(request.run_id for request in requests)
        return await harness.begin_transcriptions(requests)

    async def transcribe(run_ids: Sequence[str], own: Sequence[str], stop: asyncio.Event) -> None:
        stops.append(stop)
        assert (list(run_ids), own, stop.is_set()) == (started_ids, [], False)
        await stop.wait()

    async def audit_after_begin(requested: FicheAuditRequest) -> AuditSummary:
        await wait_until_async(lambda: bool(stops))
        return await audit(requested)

    ended = harness.work_batch(
        run_attempt, begin_transcriptions=begin, transcribe=transcribe, audit=audit_after_begin
    )
    assert (ended, started_ids) == ({"successful": 1}, ["automation-1-transcribe-2"])
    assert stops[0].is_set(), "it stops with the audits"
    assert harness.statuses(run_attempt) == ["successful", "pending"]


def test_an_error_of_the_next_batch_does_not_affect_the_audits(
    harness: AutomationHarness,
) -> None:
    async def refuse(_requests: Sequence[TranscriptionRunRequest]) -> object:
        raise PermanentError("ELEVENLABS_API_KEY is not set.")

    harness.sell("1")
    harness.add_to_crm("2")
    harness.automatic()
    run_attempt = harness.prepare_work("1", "2")
    put_into_next_batch(harness, "2")
    harness.work = replace(harness.work, transcribes_ahead=True)
    ended = harness.work_batch(run_attempt, begin_transcriptions=refuse)
    assert (ended, harness.statuses(run_attempt)) == ({"successful": 1}, ["successful", "pending"])


def test_automatic_configurations_are_those_of_the_selection(harness: AutomationHarness) -> None:
    """Regression: each batch resolved the configurations again."""
    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1")
    harness.automatic(name="Later")
    harness.run_work(run_attempt)
    assert harness.audits() == 1


def test_the_work_budget_counts_from_the_start_of_the_run(harness: AutomationHarness) -> None:
    """Regression: each batch and attempt got the full budget again."""
    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1")
    with harness.database.transaction() as session:
        spent = timedelta(seconds=harness.work.audit_seconds)
        session.execute(
            insert(RunPhaseRow).values(
                run_id=run_attempt.run_id,
                attempt=0,
                phase="selection",
                entered_at=database_time(session) - spent,
            )
        )
    harness.run_work(run_attempt)
    assert harness.outcomes(run_attempt) == {"1": UNAUDITED}


def test_an_audit_gets_the_remaining_time_of_the_run(harness: AutomationHarness) -> None:
    harness.sell("1")
    harness.automatic()
    run_attempt = harness.prepare_work("1")
    harness.work = replace(harness.work, transcription_seconds=0.0)
    harness.run_work(run_attempt)
    assert harness.outcomes(run_attempt) == {"1": Outcome("successful")}


def test_fiches_without_recordings_are_neither_transcribed_nor_audited(
    harness: AutomationHarness,
) -> None:
    """Regression: progress counted these fiches as transcribed and audited."""
    harness.sell("1")
    harness.add_to_crm("2", calls=0)
    harness.automatic()
    run_attempt = harness.prepare_work("1", "2")
    harness.run_work(run_attempt)
    with harness.database.reading() as session:
        done = progress_of(session, run_attempt.run_id)
    assert (done.fetched, done.to_work, done.transcribed, done.audited, done.ended) == (
        2,
        1,
        1,
        1,
        2,
    )
