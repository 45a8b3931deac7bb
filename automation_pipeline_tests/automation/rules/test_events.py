"""Tests of run events, notifications, and webhook URLs."""

import hashlib
import hmac
import json
from datetime import UTC, datetime

import pytest

from automation_pipeline.automation import events
from automation_pipeline.automation.events import (
    Notification,
    NotificationChannel,
    ProgressUpdate,
    notifications_of,
    webhook_headers,
)
from automation_pipeline.automation.models.runs import FicheFailure, LedgerTally, Phase, Run
from automation_pipeline.automation.models.schedules import EmptyReason, FicheSelection, Schedule
from automation_pipeline.automation.rules.schedules import check_webhook_url
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.webhooks import body_of, signature
from automation_pipeline_tests.cases import every_case

AT = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
RUN_IDS = {"schedule_id": "3", "run_id": "12"}
CHANNEL = {"job_id": "automation-run-12", **RUN_IDS}
TOTALS = {"status": "partial", "total_fiches": 5, "successful_fiches": 4, "failed_fiches": 1}


def make_run(**fields: object) -> Run:
    return Run.model_validate({
        "id": 12, "schedule_id": 3, "status": "partial", "phase": None, "trigger": "schedule", "due_at": AT,
        "attempt": 1, "dagster_run_id": None, "started_at": AT, "completed_at": AT, "duration_ms": 1500,
        "selected_fiches": 7, "total_fiches": 5, "successful_fiches": 4, "failed_fiches": 1, "ignored_fiches": 2,
        "transcriptions_run": 3, "audits_run": 6, "error_message": None, **fields,
    })  # fmt: skip


@every_case(("due_at", "text"), [(AT, "2026-05-04T10:00:00.000Z"), (None, None)])
def test_the_start_event_has_the_due_time(due_at: datetime | None, text: str | None) -> None:
    event = events.started(make_run(due_at=due_at), AT)
    assert (event.key, event.name) == ("automation-run-12-started", "automation.run.started")
    assert event.payload == {**CHANNEL, "due_at": text, "status": "running"}


@every_case(("groupes", "listed"), [(0, True), (10, True), (11, False)])
def test_a_selection_event_lists_groupes_up_to_a_limit(groupes: int, listed: bool) -> None:
    names = [f"G{number}" for number in range(groupes)]
    chosen = FicheSelection.model_validate({
        "mode": "date_range", "dateRange": "yesterday", "groupes": names, "onlyUnaudited": True, "maxFiches": 20,
    })  # fmt: skip
    event = events.selection(make_run(), chosen, 7, AT)
    assert (event.key, event.name) == ("automation-run-12-selection", "automation.run.selection")
    assert event.payload == {
        **CHANNEL,
        "mode": "date_range",
        "dateRange": "yesterday",
        **({"groupes": names} if listed else {}),
        "groupes_count": groupes,
        "onlyWithRecordings": False,
        "onlyUnaudited": True,
        "maxFiches": 20,
        "maxRecordingsPerFiche": None,
        "useRlm": False,
        "total_fiches": 7,
    }


def test_progress_is_cumulative_and_unchanged_progress_is_not_repeated() -> None:
    created = ProgressUpdate(
        Phase.AUDITING, LedgerTally(8, pending=4, successful=2, failed=1, ignored=1), audits=3
    )
    event = events.progress(make_run(), created, AT)
    assert event.name == "automation.run.progress"
    assert event.payload == {
        **CHANNEL,
        "selected_fiches": 8,
        "successful": 2,
        "failed": 1,
        "ignored": 1,
        "audits": 3,
        "current_phase": "auditing",
        "progress_percentage": 50,
        "status": "running",
    }
    assert events.progress(make_run(), created, AT).key == event.key
    further = ProgressUpdate(Phase.AUDITING, created.tally, audits=4)
    assert events.progress(make_run(), further, AT).key != event.key


def test_the_end_of_a_run_emits_a_realtime_and_a_domain_event() -> None:
    shown, inside = events.completed(make_run(), AT)
    more = {"ignored_fiches": 2, "transcriptions_run": 3, "audits_run": 6, "duration_ms": 1500}
    assert (shown.key, shown.name) == ("automation-run-12-completed", "automation.run.completed")
    assert shown.payload == {**CHANNEL, **TOTALS, **more}
    assert (inside.key, inside.name) == ("automation-completed-12", "automation/completed")
    assert inside.payload == {**RUN_IDS, **TOTALS, "duration_ms": 1500}


@every_case(
    ("reason", "key"),
    [
        (EmptyReason.NO_FICHES_MANUAL, "automation-completed-12-no-fiches"),
        (EmptyReason.NO_DATES, "automation-completed-12-no-dates"),
        (EmptyReason.NO_FICHES_FOUND, "automation-completed-12-no-fiches-found"),
    ],
)
def test_a_run_that_ends_early_reports_the_reason(reason: EmptyReason, key: str) -> None:
    shown, inside = events.completed(make_run(), AT, reason)
    assert shown.payload == {**CHANNEL, **TOTALS, "reason": str(reason)}
    assert inside.key == key


def test_a_failure_event_has_the_error() -> None:
    shown, inside = events.aborted(make_run(status="failed"), "boom", AT)
    assert (shown.key, shown.name) == ("automation-run-12-failed", "automation.run.failed")
    assert shown.payload == {**CHANNEL, "status": "failed", "error": "boom", "duration_ms": 1500}
    assert (inside.key, inside.name) == ("automation-failed-12", "automation/failed")
    assert inside.payload == {**RUN_IDS, "error": "boom"}
    waiting, _ = events.aborted(make_run(status="failed", duration_ms=None), "boom", AT)
    assert waiting.payload["duration_ms"] == 0


FAILURES = [
    FicheFailure("1900417", "audit_incomplete", "Audit incomplete (timeout/stall)"),
    FicheFailure("7", "fetch_failed", "a\nb"),
]


def run(**fields: object) -> Run:
    counts = {
        "successful_fiches": 40,
        "failed_fiches": 2,
        "ignored_fiches": 5,
        "transcriptions_run": 37,
    }
    return Run.model_validate({
        "id": 17, "schedule_id": 3, "status": "partial", "phase": "finalizing", "trigger": "schedule", "due_at": None,
        "attempt": 1, "dagster_run_id": None, "started_at": AT, "completed_at": AT, "duration_ms": 1_284_999,
        "selected_fiches": 47, "total_fiches": 42, "audits_run": 80, "error_message": None, **counts, **fields,
    })  # fmt: skip


def schedule(**fields: object) -> Schedule:
    return Schedule.model_validate({
        "id": 3, "name": "Nightly audit", "schedule_type": "MANUAL", "last_run_at": None, "last_run_status": None,
        "fiche_selection": {"mode": "manual", "ficheIds": ["1"]}, "total_runs": 0, "successful_runs": 0,
        "failed_runs": 0, "failures_in_a_row": 0, "paused_reason": None, "skip_due_at": None, "last_due_at": None,
        "created_at": AT, "updated_at": AT, "webhook_url": "https://hooks.example.com/a?key=1",
        "notify_emails": ["anna@example.com", "bert@example.com", "anna@example.com"], **fields,
    })  # fmt: skip


@every_case(
    ("status", "on_complete", "on_error", "wanted"),
    [
        ("completed", True, False, True),
        ("completed", False, True, False),
        ("partial", True, False, False),
        ("partial", False, True, True),
        ("failed", True, False, False),
        ("failed", False, True, True),
        ("failed", False, False, False),
        ("completed", True, True, True),
    ],
)
def test_the_schedule_settings_decide_which_outcomes_are_notified(
    status: str, on_complete: bool, on_error: bool, wanted: bool
) -> None:
    message = schedule(notify_on_complete=on_complete, notify_on_error=on_error)
    assert bool(notifications_of(run(status=status), message, [], None)) is wanted


def test_every_receiver_gets_one_message() -> None:
    result = notifications_of(run(), schedule(), FAILURES, None)
    receivers = [(each.channel, each.target) for each in result]
    mails = [
        (NotificationChannel.EMAIL, "anna@example.com"),
        (NotificationChannel.EMAIL, "bert@example.com"),
    ]
    assert receivers == [(NotificationChannel.WEBHOOK, "https://hooks.example.com/a?key=1"), *mails]
    assert len({each.key for each in result}) == 3
    assert result[0].key.startswith("notification-17-webhook-")
    assert (
        notifications_of(run(), schedule(webhook_url=None, notify_emails=[]), FAILURES, None) == []
    )


def test_webhook_payload_of_a_finished_run() -> None:
    [result] = notifications_of(run(), schedule(notify_emails=[]), FAILURES[:1], None)
    assert json.loads(body_of(result.payload)) == {
        "schedule_id": "3", "schedule_name": "Nightly audit", "run_id": "17", "status": "partial",
        "duration_seconds": 1284, "total_fiches": 42, "successful_fiches": 40, "failed_fiches": 2, "ignored_fiches": 5,
        "transcriptions_run": 37, "audits_run": 80,
        "failures": [{"ficheId": "1900417", "error": "Audit incomplete (timeout/stall)"}],
        "failures_total": 2,
    }  # fmt: skip


def test_webhook_payload_of_an_interrupted_run() -> None:
    result = schedule(notify_emails=[])
    [message] = notifications_of(run(status="failed"), result, [], "The worker was killed")
    assert message.payload == {
        "schedule_id": "3", "schedule_name": "Nightly audit", "run_id": "17", "status": "failed",
        "error": "The worker was killed", "duration_seconds": 1284,
    }  # fmt: skip


def test_all_failures_are_counted_and_only_the_first_hundred_listed() -> None:
    many = [FicheFailure(str(number), "fetch_failed", "x") for number in range(1000)]
    webhook, mail, _ = notifications_of(run(failed_fiches=1000), schedule(), many, None)
    named = webhook.payload["failures"]
    assert isinstance(named, list)
    assert (len(named), webhook.payload["failures_total"]) == (100, 1000)
    assert str(mail.payload["text"]).endswith("- 99: x\n- and 900 more\n")


def test_the_email_body_is_plain_text() -> None:
    [mail] = notifications_of(
        run(), schedule(webhook_url=None, notify_emails=["anna@example.com"]), FAILURES, None
    )
    assert mail.payload["subject"] == "Automation Nightly audit - PARTIAL"
    assert mail.payload["text"] == (
        "Automation run 17 ended: partial.\n\nSummary:\n- Total Fiches: 42\n- Successful: 40\n- Failed: 2\n"
        "- Ignored: 5\n- Transcriptions: 37\n- Audits: 80\n- Duration: 1284s\n\nFailures:\n"
        "- 1900417: Audit incomplete (timeout/stall)\n- 7: a b\n"
    )


def test_success_emails_list_no_failures_and_failure_emails_include_the_error() -> None:
    result = schedule(webhook_url=None, notify_emails=["anna@example.com"], name="Nuit\r\nBcc: eve")
    [good] = notifications_of(run(status="completed", failed_fiches=0), result, [], None)
    assert good.payload["subject"] == "Automation Nuit Bcc: eve - COMPLETED"
    assert "Failures" not in str(good.payload["text"])
    [bad] = notifications_of(run(status="failed"), result, [], "The worker was killed")
    assert bad.payload["subject"] == "Automation Nuit Bcc: eve - FAILED"
    assert "run 17 failed after 1284s.\n\nError: The worker was killed" in str(bad.payload["text"])
    [stopped] = notifications_of(run(status="cancelled"), result, [], "Not today")
    assert "run 17 was cancelled after 1284s.\n\nError: Not today" in str(stopped.payload["text"])


def test_a_receiver_can_verify_the_signature() -> None:
    body = '{"a":"é"}'.encode()
    values = dict(part.split("=") for part in signature("s3cret", body, 1_777_888_999).split(","))
    assert values["t"] == "1777888999"
    expected = hmac.new(b"s3cret", values["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(values["v1"], expected)
    assert signature("other", body, 1_777_888_999) != signature("s3cret", body, 1_777_888_999)


def test_the_headers_name_the_event_and_the_delivery() -> None:
    whole = Notification(
        17, NotificationChannel.WEBHOOK, "https://hooks.example.com", {"status": "partial"}
    )
    broken = Notification(
        17,
        NotificationChannel.WEBHOOK,
        "https://hooks.example.com",
        {"status": "failed", "error": "x"},
    )
    plain = webhook_headers(whole, b"{}", None, 1)
    assert plain == {
        "Content-Type": "application/json",
        "X-Automation-Event": "automation.run.completed",
        "X-Automation-Delivery": whole.key,
    }
    signed = webhook_headers(broken, b"{}", "s3cret", 1)
    assert signed["X-Automation-Event"] == "automation.run.failed"
    assert signed["X-Automation-Signature"] == signature("s3cret", b"{}", 1)


@every_case("url", [None, "", "https://hooks.example.com/a"])
def test_a_missing_or_public_webhook_url_is_accepted(url: str | None) -> None:
    check_webhook_url(url, ())


def test_a_rejected_webhook_url_names_the_field_and_the_reason() -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid automation schedule data$") as caught:
        check_webhook_url("http://10.0.0.1/", ())
    assert caught.value.fields == (("webhookUrl", "webhookUrl IP not allowed"),)


def test_an_allowlisted_private_webhook_url_is_accepted() -> None:
    check_webhook_url("http://10.0.0.1/", ("http://10.0.0.1",))
