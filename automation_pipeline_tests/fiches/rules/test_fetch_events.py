"""What the outside is told of a job over days."""

import hashlib
import hmac
from dataclasses import replace
from datetime import UTC, date, datetime

from automation_pipeline.fiches.events import (
    CREATED,
    DueWebhook,
    event_name,
    is_webhook_due,
    job_event,
    webhook_body,
    webhook_headers,
)
from automation_pipeline.fiches.models.fetch_jobs import FetchJob, JobStatus, JobWebhook
from automation_pipeline_tests.tables import every_case

AT = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
ONE, TWO, THREE = date(2026, 2, 1), date(2026, 2, 2), date(2026, 2, 3)
JOB = FetchJob(
    id="j-1", start=ONE, end=THREE, status=JobStatus.PROCESSING, fetched=(ONE,), remaining=(THREE,), failed=(TWO,),
    total_fiches=7, created_by="user:1", webhook=JobWebhook("https://hooks.example.com/secret-path", "s3cret"),
)  # fmt: skip
STANDING = {
    "status": "processing", "progress": 66, "completedDays": 1, "totalDays": 3, "totalFiches": 7,
    "datesCompleted": ["2026-02-01"], "datesRemaining": ["2026-02-03"], "datesFailed": ["2026-02-02"], "error": None,
}  # fmt: skip


def test_an_event_has_the_fields_of_the_reference_and_a_key_of_its_own() -> None:
    told = job_event(JOB, "progress", AT, TWO)
    assert (told.name, told.correlation_id) == ("fiches.progressive_fetch.progress", "j-1")
    days = {"startDate": "2026-02-01", "endDate": "2026-02-03"}
    assert told.payload == {"jobId": "j-1", **days, **STANDING, "latestDate": "2026-02-02"}
    later = replace(JOB, fetched=(ONE, THREE), remaining=())
    ended = replace(later, status=JobStatus.COMPLETE)
    keys = [job_event(job, event_name(job), AT).key for job in (JOB, later, ended)] + [
        job_event(JOB, CREATED, AT).key
    ]
    assert len(set(keys)) == 4
    assert "latestDate" not in job_event(JOB, CREATED, AT).payload


def test_a_webhook_tells_ids_and_counts() -> None:
    url = "/api/fiches/status/by-date-range?startDate=2026-02-01&endDate=2026-02-03"
    assert webhook_body(JOB, AT, TWO) == {
        "event": "progress",
        "jobId": "j-1",
        "timestamp": "2026-05-04T10:00:00.000Z",
        "data": {**STANDING, "latestDate": "2026-02-02", "currentFichesCount": 7, "dataUrl": url},
    }


def test_of_a_job_that_is_not_counted_no_total_is_told() -> None:
    job = replace(JOB, total_fiches=None)
    told = {name: value for name, value in STANDING.items() if name != "totalFiches"}
    body = webhook_body(job, AT)["data"]
    assert isinstance(body, dict)
    assert {name: value for name, value in body.items() if name != "dataUrl"} == told
    assert "totalFiches" not in job_event(job, CREATED, AT).payload


@every_case(
    ("status", "processed", "every", "told"),
    [
        (JobStatus.PROCESSING, 4, 5, False),
        (JobStatus.PROCESSING, 5, 5, True),
        (JobStatus.PROCESSING, 6, 5, False),
        (JobStatus.PROCESSING, 7, 1, True),
        (JobStatus.COMPLETE, 7, 5, True),
        (JobStatus.FAILED, 7, 5, True),
    ],
)
def test_the_webhook_hears_of_every_few_days_and_of_the_end(
    status: JobStatus, processed: int, every: int, told: bool
) -> None:
    days = tuple(date(2026, 2, 1 + n) for n in range(processed))
    assert is_webhook_due(replace(JOB, status=status, fetched=days, failed=()), every) is told


def due(secret: str | None) -> DueWebhook:
    return DueWebhook(
        id=12,
        job_id="j-1",
        event="progress",
        url="https://h.example.com",
        payload={},
        attempt=2,
        secret=secret,
    )


def test_a_receiver_can_check_both_signatures() -> None:
    headers = webhook_headers(due("s3cret"), b"{}", AT)
    moment = headers["X-Webhook-Timestamp"]
    assert moment == str(int(AT.timestamp()))
    plain = hmac.new(b"s3cret", b"{}", hashlib.sha256).hexdigest()
    dated = hmac.new(b"s3cret", moment.encode() + b".{}", hashlib.sha256).hexdigest()
    assert headers["X-Webhook-Signature"] == f"sha256={plain}"
    assert headers["X-Webhook-Signature-V2"] == f"sha256={dated}"


def test_without_a_secret_nothing_is_signed() -> None:
    headers = webhook_headers(due(None), b"{}", AT)
    assert headers == {
        "Content-Type": "application/json",
        "User-Agent": "automation-pipeline-webhook/1.0",
        "X-Webhook-Event": "progress",
        "X-Webhook-Job-Id": "j-1",
        "X-Webhook-Delivery-Id": "12",
        "X-Webhook-Attempt": "2",
        "X-Webhook-Timestamp": str(int(AT.timestamp())),
    }
