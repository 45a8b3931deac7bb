"""Fetch jobs: their states, events and webhooks."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.fiches.models.days import DayFailed, SalesDay
from automation_pipeline.fiches.models.fetch_jobs import (
    CREATED,
    FETCH_JOB,
    DueWebhook,
    FetchJob,
    JobStatus,
    JobWebhook,
    count_day,
    event_name,
    fail_job,
    is_webhook_due,
    job_event,
    start_job,
    webhook_body,
    webhook_headers,
)
from automation_pipeline_tests.cases import every_case

FIRST = date(2026, 2, 1)
DAYS = tuple(FIRST + timedelta(days=n) for n in range(6))
P, W, C, F = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETE, JobStatus.FAILED


def make_job(fetched: int = 0, status: JobStatus = W) -> FetchJob:
    return FetchJob(
        id="j", start=DAYS[0], end=DAYS[-1], status=status, fetched=DAYS[:fetched], remaining=DAYS[fetched:],
        created_by="user:1",
    )  # fmt: skip


def fetched_day(day: date, fiches: int = 2) -> SalesDay:
    at = datetime(2026, 5, 4, tzinfo=UTC)
    return SalesDay(
        day, at, listed=fiches, duplicates=0, new=0, changed=0, missing_cle=0, without_recordings=0
    )


def outcomes(days: Sequence[date], good: Sequence[bool]) -> list[SalesDay | DayFailed]:
    return [
        fetched_day(day) if is_good else DayFailed(day, "no")
        for day, is_good in zip(days, good, strict=False)
    ]


@given(
    st.integers(0, 5),
    st.lists(
        st.tuples(st.sampled_from((*DAYS, FIRST - timedelta(days=9))), st.booleans()), max_size=20
    ),
)
def test_outcomes_in_any_order_keep_the_days_partitioned(
    fetched: int, outcomes_given: list[tuple[date, bool]]
) -> None:
    job = make_job(fetched)
    for day, good in outcomes_given:
        before = job
        job = count_day(job, fetched_day(day) if good else DayFailed(day, "no"))
        all_days = [*job.fetched, *job.remaining, *job.failed]
        assert sorted(all_days) == list(DAYS)
        assert job.processed + len(job.remaining) == job.total_days == len(DAYS)
        assert 0 <= before.progress <= job.progress <= 100
        assert (job.progress == 100) == (not job.remaining) == job.is_over
        assert set(before.fetched) <= set(job.fetched)
        assert set(before.failed) <= set(job.failed)


def test_a_day_is_counted_once() -> None:
    job = count_day(make_job(), fetched_day(DAYS[3]))
    assert count_day(job, fetched_day(DAYS[3])) is job
    assert count_day(job, DayFailed(DAYS[3], "later")) is job
    assert (job.total_fiches, job.fetched, job.progress) == (2, (DAYS[3],), 16)
    assert count_day(replace(job, total_fiches=None), fetched_day(DAYS[0])).total_fiches is None


@every_case(
    ("known", "good", "status", "error"),
    [
        (0, [True] * 6, C, None),
        (0, [False] * 5 + [True], C, None),
        (0, [True] + [False] * 5, C, None),
        (5, [False], C, None),
        (0, [False] * 6, F, "No sales list of the range could be fetched: no"),
    ],
)
def test_a_job_fails_only_if_every_day_failed(
    known: int, good: list[bool], status: JobStatus, error: str | None
) -> None:
    job = make_job(known)
    for outcome in outcomes(job.remaining, good):
        job = count_day(job, outcome)
    assert (job.status, job.error, job.progress) == (status, error, 100)


def test_an_interrupted_job_keeps_its_fetched_days_and_counts_no_more() -> None:
    job = fail_job(count_day(make_job(), fetched_day(DAYS[0])), "The run was terminated")
    assert (job.status, job.error, job.fetched, len(job.remaining)) == (
        F,
        "The run was terminated",
        DAYS[:1],
        5,
    )
    assert count_day(job, fetched_day(DAYS[1])) is job


def test_starting_a_processing_job_again_changes_nothing() -> None:
    job = start_job(make_job(status=P))
    assert job.status is W
    assert start_job(job) is job


LEGAL = {(P, W), (P, F), (W, C), (W, F)}


@every_case(("before", "after"), [(one, other) for one in JobStatus for other in JobStatus])
def test_only_the_listed_transitions_are_legal(before: JobStatus, after: JobStatus) -> None:
    assert FETCH_JOB.can_move(before, after) == ((before, after) in LEGAL)


@every_case("status", [C, F])
def test_a_finished_job_can_neither_start_nor_fail(status: JobStatus) -> None:
    finished = replace(make_job(), status=status)
    with pytest.raises(IllegalMoveError):
        start_job(finished)
    with pytest.raises(IllegalMoveError):
        fail_job(finished, "late")


def test_a_job_without_remaining_days_has_full_progress() -> None:
    assert replace(make_job(), remaining=()).progress == 100


AT = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
ONE, TWO, THREE = date(2026, 2, 1), date(2026, 2, 2), date(2026, 2, 3)
JOB = FetchJob(
    id="j-1", start=ONE, end=THREE, status=JobStatus.PROCESSING, fetched=(ONE,), remaining=(THREE,), failed=(TWO,),
    total_fiches=7, created_by="user:1", webhook=JobWebhook("https://hooks.example.com/secret-path", "s3cret"),
)  # fmt: skip
STATE = {
    "status": "processing", "progress": 66, "completedDays": 1, "totalDays": 3, "totalFiches": 7,
    "datesCompleted": ["2026-02-01"], "datesRemaining": ["2026-02-03"], "datesFailed": ["2026-02-02"], "error": None,
}  # fmt: skip


def test_a_job_event_has_the_documented_fields_and_a_unique_key() -> None:
    event = job_event(JOB, "progress", AT, TWO)
    assert (event.name, event.correlation_id) == ("fiches.progressive_fetch.progress", "j-1")
    days = {"startDate": "2026-02-01", "endDate": "2026-02-03"}
    assert event.payload == {"jobId": "j-1", **days, **STATE, "latestDate": "2026-02-02"}
    later = replace(JOB, fetched=(ONE, THREE), remaining=())
    ended = replace(later, status=JobStatus.COMPLETE)
    keys = [job_event(job, event_name(job), AT).key for job in (JOB, later, ended)] + [
        job_event(JOB, CREATED, AT).key
    ]
    assert len(set(keys)) == 4
    assert "latestDate" not in job_event(JOB, CREATED, AT).payload


def test_a_webhook_body_has_ids_and_counts() -> None:
    url = "/api/fiches/status/by-date-range?startDate=2026-02-01&endDate=2026-02-03"
    assert webhook_body(JOB, AT, TWO) == {
        "event": "progress",
        "jobId": "j-1",
        "timestamp": "2026-05-04T10:00:00.000Z",
        "data": {**STATE, "latestDate": "2026-02-02", "currentFichesCount": 7, "dataUrl": url},
    }


def test_a_job_without_a_total_omits_total_fiches() -> None:
    job = replace(JOB, total_fiches=None)
    values = {name: value for name, value in STATE.items() if name != "totalFiches"}
    body = webhook_body(job, AT)["data"]
    assert isinstance(body, dict)
    assert {name: value for name, value in body.items() if name != "dataUrl"} == values
    assert "totalFiches" not in job_event(job, CREATED, AT).payload


@every_case(
    ("status", "processed", "every", "expected"),
    [
        (JobStatus.PROCESSING, 4, 5, False),
        (JobStatus.PROCESSING, 5, 5, True),
        (JobStatus.PROCESSING, 6, 5, False),
        (JobStatus.PROCESSING, 7, 1, True),
        (JobStatus.COMPLETE, 7, 5, True),
        (JobStatus.FAILED, 7, 5, True),
    ],
)
def test_a_webhook_is_due_every_few_days_and_at_the_end(
    status: JobStatus, processed: int, every: int, expected: bool
) -> None:
    days = tuple(date(2026, 2, 1 + n) for n in range(processed))
    assert is_webhook_due(replace(JOB, status=status, fetched=days, failed=()), every) is expected


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


def test_a_receiver_can_verify_both_signatures() -> None:
    headers = webhook_headers(due("s3cret"), b"{}", AT)
    moment = headers["X-Webhook-Timestamp"]
    assert moment == str(int(AT.timestamp()))
    plain = hmac.new(b"s3cret", b"{}", hashlib.sha256).hexdigest()
    dated = hmac.new(b"s3cret", moment.encode() + b".{}", hashlib.sha256).hexdigest()
    assert headers["X-Webhook-Signature"] == f"sha256={plain}"
    assert headers["X-Webhook-Signature-V2"] == f"sha256={dated}"


def test_a_webhook_without_a_secret_has_no_signature() -> None:
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
