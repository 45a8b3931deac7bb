"""Asking for a range: what is known, what is missing, and the one job that brings it."""

from datetime import UTC, date, datetime, timedelta

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.fiches.fetch_jobs import fail_range
from automation_pipeline.fiches.models.fetch_jobs import JobStatus, JobWebhook
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, Ranges


@pytest.fixture
def ranges(database: Database, clock: StandingClock) -> Ranges:
    return Ranges(database, clock)


def test_days_that_are_missing_become_a_job_and_a_request(ranges: Ranges) -> None:
    ranges.sell(*DAYS)
    ranges.know(*DAYS[:3])
    told = ranges.ask(webhook=HOOK)
    assert (told.days, told.known, told.missing) == (DAYS, DAYS[:3], DAYS[3:])
    [row], [request] = ranges.jobs, ranges.requests
    assert told.job
    assert (row.id, row.status, row.total_days, row.total_fiches) == (told.job.id, "pending", 7, 6)
    assert row.dates_already_fetched == [day.isoformat() for day in DAYS[:3]]
    assert row.dates_remaining == [day.isoformat() for day in DAYS[3:]]
    assert (row.webhook_url, row.webhook_secret, row.created_by) == (
        HOOK.url,
        HOOK.secret,
        "user:1",
    )
    assert (request.request_key, request.job) == (row.id, "sales_range_fetch")
    assert request.config == {"job_id": row.id, "refresh": False}
    assert "s3cret" not in str(request.config) + str(request.tags)
    assert ranges.events() == [("created", 42)]
    assert ranges.deliveries == []


def test_when_everything_is_known_nothing_is_filed(ranges: Ranges) -> None:
    ranges.know(*DAYS)
    told = ranges.ask()
    assert (told.known, told.missing, told.job) == (DAYS, (), None)
    assert ranges.jobs == ranges.requests == []


def test_by_refresh_everything_is_asked_for_again(ranges: Ranges) -> None:
    ranges.know(*DAYS)
    told = ranges.ask(refresh=True)
    assert told.job
    assert (told.known, told.job.fetched, told.job.remaining) == (DAYS, (), DAYS)
    assert ranges.requests[0].config["refresh"] is True


def test_the_same_range_asked_for_again_within_minutes_is_the_same_job(ranges: Ranges) -> None:
    first = ranges.job()
    ranges.clock.pass_time(timedelta(minutes=4, seconds=59))
    assert ranges.job().id == first.id
    others = [
        ranges.job(caller="user:2"),
        ranges.job(DAYS[1]),
        ranges.job(refresh=True),
        ranges.job(webhook=HOOK),
    ]
    ranges.clock.pass_time(timedelta(minutes=6))
    others.append(ranges.job())
    assert len({first.id, *(job.id for job in others)}) == 6
    assert len(ranges.requests) == 6


def test_a_job_is_shared_only_with_who_would_hear_the_same(ranges: Ranges) -> None:
    told = ranges.job(webhook=HOOK)
    assert ranges.job(webhook=HOOK).id == told.id
    assert ranges.job().id == told.id
    assert ranges.job(webhook=JobWebhook(HOOK.url)).id != told.id


def test_a_job_that_has_failed_is_not_filed_again_at_every_look(ranges: Ranges) -> None:
    job = ranges.job()
    assert fail_range(job.id, "no", database=ranges.database, clock=ranges.clock)
    again = ranges.job()
    assert (again.id, again.status) == (job.id, JobStatus.FAILED)


def test_days_after_today_in_paris_are_left_out(database: Database) -> None:
    late = Ranges(database, StandingClock(datetime(2026, 2, 3, 23, 30, tzinfo=UTC)))
    assert late.ask(date(2026, 2, 3), date(2026, 2, 20)).days == (
        date(2026, 2, 3),
        date(2026, 2, 4),
    )
    early = Ranges(database, StandingClock(datetime(2026, 2, 3, 22, 30, tzinfo=UTC)))
    assert early.ask(date(2026, 2, 3), date(2026, 2, 20)).days == (date(2026, 2, 3),)


def test_a_range_in_the_future_is_empty_and_complete(ranges: Ranges) -> None:
    told = ranges.ask(date(2026, 6, 1), date(2026, 6, 2), refresh=True)
    assert (told.days, told.missing, told.job) == ((), (), None)
    assert ranges.jobs == []


@pytest.mark.parametrize(
    ("start", "end", "webhook", "complaint"),
    [
        (DAYS[1], DAYS[0], None, "startDate must be before or equal to endDate"),
        (DAYS[0], DAYS[1], JobWebhook("http://127.0.0.1/"), "webhookUrl IP not allowed"),
        (
            DAYS[0],
            DAYS[1],
            JobWebhook("ftp://hooks.example.com"),
            "webhookUrl must use http or https protocol",
        ),
        (DAYS[0], DAYS[1], JobWebhook("https://[::ffff:10.0.0.1]/"), "webhookUrl IP not allowed"),
    ],
)
def test_what_cannot_be_accepted_leaves_nothing(
    ranges: Ranges, start: date, end: date, webhook: JobWebhook | None, complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        ranges.ask(start, end, webhook=webhook)
    assert ranges.jobs == []
