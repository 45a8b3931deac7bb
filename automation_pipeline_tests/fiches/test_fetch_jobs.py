"""Fetch jobs: requests for them, the work on them, and the deliveries to their webhooks."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.errors import (
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline.fiches.fetch_jobs import deliver_job_webhooks, fail_range, fetch_range
from automation_pipeline.fiches.models.fetch_jobs import JobStatus, JobWebhook
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.fiches.tables import FetchDeliveryRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.statements import database_now, database_time
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource
from automation_pipeline_tests.fakes.senders import ACCEPTED, FakeWebhookSender
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, FetchJobHarness


@pytest.fixture
def ranges(database: Database, clock: FakeClock) -> FetchJobHarness:
    return FetchJobHarness(database, clock)


def test_missing_days_create_a_job_and_a_run_request(ranges: FetchJobHarness) -> None:
    ranges.sell(*DAYS)
    ranges.prefetch(*DAYS[:3])
    result = ranges.request(webhook=HOOK)
    assert (result.days, result.known, result.missing) == (DAYS, DAYS[:3], DAYS[3:])
    [row], [request] = ranges.jobs, ranges.requests
    assert result.job
    assert (row.id, row.status, row.total_days, row.total_fiches) == (
        result.job.id,
        "pending",
        7,
        6,
    )
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


def test_a_range_with_all_days_known_creates_no_job(ranges: FetchJobHarness) -> None:
    ranges.prefetch(*DAYS)
    result = ranges.request()
    assert (result.known, result.missing, result.job) == (DAYS, (), None)
    assert ranges.jobs == ranges.requests == []


def test_a_refresh_request_fetches_all_days_again(ranges: FetchJobHarness) -> None:
    ranges.prefetch(*DAYS)
    result = ranges.request(refresh=True)
    assert result.job
    assert (result.known, result.job.fetched, result.job.remaining) == (DAYS, (), DAYS)
    assert ranges.requests[0].config["refresh"] is True


def test_the_same_range_requested_within_five_minutes_returns_the_same_job(
    ranges: FetchJobHarness,
) -> None:
    first = ranges.job()
    ranges.clock.advance(timedelta(minutes=4, seconds=59))
    assert ranges.job().id == first.id
    others = [
        ranges.job(caller="user:2"),
        ranges.job(DAYS[1]),
        ranges.job(refresh=True),
        ranges.job(webhook=HOOK),
    ]
    ranges.clock.advance(timedelta(minutes=6))
    others.append(ranges.job())
    assert len({first.id, *(job.id for job in others)}) == 6
    assert len(ranges.requests) == 6


def test_a_job_is_shared_only_if_its_webhook_covers_the_request(ranges: FetchJobHarness) -> None:
    result = ranges.job(webhook=HOOK)
    assert ranges.job(webhook=HOOK).id == result.id
    assert ranges.job().id == result.id
    assert ranges.job(webhook=JobWebhook(HOOK.url)).id != result.id


def test_a_failed_job_is_not_created_again_by_the_next_request(ranges: FetchJobHarness) -> None:
    job = ranges.job()
    assert fail_range(job.id, "no", database=ranges.database, clock=ranges.clock)
    again = ranges.job()
    assert (again.id, again.status) == (job.id, JobStatus.FAILED)


def test_days_after_today_in_paris_are_excluded(database: Database) -> None:
    late = FetchJobHarness(database, FakeClock(datetime(2026, 2, 3, 23, 30, tzinfo=UTC)))
    assert late.request(date(2026, 2, 3), date(2026, 2, 20)).days == (
        date(2026, 2, 3),
        date(2026, 2, 4),
    )
    early = FetchJobHarness(database, FakeClock(datetime(2026, 2, 3, 22, 30, tzinfo=UTC)))
    assert early.request(date(2026, 2, 3), date(2026, 2, 20)).days == (date(2026, 2, 3),)


def test_a_range_in_the_future_is_empty_and_complete(ranges: FetchJobHarness) -> None:
    result = ranges.request(date(2026, 6, 1), date(2026, 6, 2), refresh=True)
    assert (result.days, result.missing, result.job) == ((), (), None)
    assert ranges.jobs == []


@pytest.mark.parametrize(
    ("start", "end", "webhook", "message"),
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
def test_a_rejected_request_creates_no_job(
    ranges: FetchJobHarness, start: date, end: date, webhook: JobWebhook | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ranges.request(start, end, webhook=webhook)
    assert ranges.jobs == []


UNAVAILABLE = TransientError("The CRM does not answer.")


def iso(*days: date) -> list[str]:
    return [day.isoformat() for day in days]


def test_every_missing_day_is_fetched_once_and_publishes_progress(ranges: FetchJobHarness) -> None:
    ranges.sell(*DAYS)
    ranges.prefetch(*DAYS[:2])
    ended = ranges.work(ranges.job(webhook=HOOK))
    assert sorted(ranges.crm.requests) == iso(*DAYS[2:])
    assert (ended.status, ended.fetched, ended.remaining, ended.total_fiches) == (
        JobStatus.COMPLETE,
        DAYS,
        (),
        14,
    )
    [row] = ranges.jobs
    assert (row.status, row.completed_at) == ("complete", ranges.clock.now())
    progress = [("progress", 100 * n // 7) for n in range(3, 7)]
    assert ranges.events() == [("created", 28), *progress, ("complete", 100)]
    assert [(each.event, each.payload["data"]["progress"]) for each in ranges.deliveries] == [
        ("progress", 71),
        ("complete", 100),
    ]


def test_events_and_webhooks_contain_no_personal_data(ranges: FetchJobHarness) -> None:
    ranges.sell(*DAYS)
    ranges.work(ranges.job(webhook=HOOK), webhook_every=1)
    payloads = [row.payload for row in ranges.rows(OutboxRow)] + [
        row.payload for row in ranges.deliveries
    ]
    assert len(payloads) == 8 + 7
    sent = json.dumps(payloads)
    for private in ("MARTEL", "Odile", "0600000001", "odile.martel", "s3cret", HOOK.url):
        assert private not in sent


def test_a_failed_day_is_counted_separately_and_the_job_continues(ranges: FetchJobHarness) -> None:
    ranges.crm.fail_always(DAYS[2].isoformat(), UNAVAILABLE)
    ended = ranges.work(ranges.job())
    assert (ended.status, ended.failed, ended.error) == (JobStatus.COMPLETE, (DAYS[2],), None)
    assert ended.fetched == (*DAYS[:2], *DAYS[3:])
    [note] = ranges.rows(WorkflowLogRow)
    assert (
        note.message
        == f"The sales list of {DAYS[2]} could not be fetched: The CRM does not answer."
    )
    assert (note.entity_type, note.entity_id, note.level) == ("fetch_job", ended.id, "warning")


def test_a_job_without_any_fetched_day_fails(ranges: FetchJobHarness) -> None:
    ranges.crm.refuse_everything(UNAVAILABLE)
    ended = ranges.work(ranges.job(webhook=HOOK))
    assert (ended.status, ended.failed) == (JobStatus.FAILED, DAYS)
    assert ended.error == "No sales list of the range could be fetched: The CRM does not answer."
    assert [each.event for each in ranges.deliveries] == ["progress", "failed"]
    assert ranges.events()[-1] == ("failed", 100)


class Killed(BaseException):
    """Stands for the death of a process."""


class KilledSource(FakeFicheSource):
    """Kills the process on one day, as soon as the lists of four other days are stored."""

    is_dying = True
    is_ready_to_die: Callable[[], bool]

    async def sales_list(self, day: date) -> SalesList:
        if day == DAYS[4] and self.is_dying:
            while not await asyncio.to_thread(self.is_ready_to_die):  # noqa: ASYNC110  the condition is in the database
                await asyncio.sleep(0.005)
            raise Killed
        if day in DAYS[5:] and self.is_dying:
            await asyncio.Event().wait()
        return await super().sales_list(day)


def test_a_restarted_job_fetches_only_the_remaining_days(
    database: Database, clock: FakeClock
) -> None:
    crm = KilledSource()
    ranges = FetchJobHarness(database, clock, crm)
    ranges.sell(*DAYS)
    job = ranges.job(refresh=True)
    crm.is_ready_to_die = lambda: len(ranges.stored(job).fetched) == 4
    with pytest.raises(Killed):
        ranges.work(job, refresh=True)
    interrupted = ranges.stored(job)
    assert (interrupted.status, interrupted.fetched, interrupted.remaining) == (
        JobStatus.PROCESSING,
        DAYS[:4],
        DAYS[4:],
    )
    crm.is_dying = False
    crm.requests.clear()
    ended = ranges.work(job, refresh=True)
    assert sorted(crm.requests) == iso(*interrupted.remaining)
    assert (ended.status, ended.fetched, ended.total_fiches) == (JobStatus.COMPLETE, DAYS, 14)
    names = [name for name, _ in ranges.events()]
    assert names == ["created", *["progress"] * 6, "complete"]


def test_two_concurrent_workers_count_every_day_once(ranges: FetchJobHarness) -> None:
    ranges.sell(*DAYS)
    job = ranges.job(webhook=HOOK)

    async def both() -> None:
        work = [
            fetch_range(
                job.id,
                database=ranges.database,
                source=ranges.crm,
                clock=ranges.clock,
                semaphore=ranges.semaphore,
                webhook_every=1,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*work)

    asyncio.run(both())
    ended = ranges.stored(job)
    assert (ended.status, ended.total_fiches) == (JobStatus.COMPLETE, 14)
    assert len(ranges.deliveries) == 7
    assert len(ranges.events()) == 8


def test_a_finished_job_is_not_worked_on_again(ranges: FetchJobHarness) -> None:
    job = ranges.job()
    ended = ranges.work(job)
    ranges.crm.requests.clear()
    assert ranges.work(job) == ended
    assert ranges.crm.requests == []


def test_a_job_that_failed_during_the_work_stays_failed(ranges: FetchJobHarness) -> None:
    class SlowSource(FakeFicheSource):
        async def sales_list(self, day: date) -> SalesList:
            fail_range(
                job.id, "The run was terminated", database=ranges.database, clock=ranges.clock
            )
            return await super().sales_list(day)

    ranges.crm = SlowSource()
    job = ranges.job(webhook=HOOK)
    ended = ranges.work(job)
    assert (ended.status, ended.error) == (JobStatus.FAILED, "The run was terminated")
    assert ended.remaining == DAYS
    assert [each.event for each in ranges.deliveries] == ["failed"]
    assert not fail_range(job.id, "again", database=ranges.database, clock=ranges.clock)


def test_an_unknown_job_is_not_found(ranges: FetchJobHarness) -> None:
    work = fetch_range(
        "nope",
        database=ranges.database,
        source=ranges.crm,
        clock=ranges.clock,
        semaphore=ranges.semaphore,
    )
    with pytest.raises(NotFoundError, match="Job nope not found"):
        asyncio.run(work)
    assert not fail_range("nope", "gone", database=ranges.database, clock=ranges.clock)


# The database reads the current time in two ways, which differ slightly.
CLOCKS_APART = timedelta(milliseconds=20)


def deliver(ranges: FetchJobHarness, sender: FakeWebhookSender, hold_seconds: float = 60) -> int:
    return asyncio.run(
        deliver_job_webhooks(sender, database=ranges.database, hold_seconds=hold_seconds)
    )


def make_retries_due(ranges: FetchJobHarness) -> None:
    with ranges.database.transaction() as session:
        session.execute(update(FetchDeliveryRow).values(next_retry_at=database_now()))


def current_time(ranges: FetchJobHarness) -> datetime:
    with ranges.database.reading() as session:
        return database_time(session)


def complete_job(
    ranges: FetchJobHarness, days: Sequence[date] = DAYS[:1], webhook_every: int = 1
) -> None:
    ranges.work(ranges.job(days[0], days[-1], webhook=HOOK), webhook_every=webhook_every)


def test_a_webhook_is_sent_once_with_valid_signatures(ranges: FetchJobHarness) -> None:
    complete_job(ranges)
    sender = FakeWebhookSender()
    assert [deliver(ranges, sender) for _ in range(2)] == [1, 0]
    [posted], [row], [job] = sender.posted, ranges.deliveries, ranges.jobs
    assert posted.url == HOOK.url
    body = json.loads(posted.body)
    assert (body["event"], body["jobId"], body["data"]["progress"]) == ("complete", job.id, 100)
    headers = posted.headers
    assert (
        headers["X-Webhook-Event"],
        headers["X-Webhook-Job-Id"],
        headers["X-Webhook-Attempt"],
    ) == (
        "complete",
        job.id,
        "1",
    )
    assert headers["X-Webhook-Delivery-Id"] == str(row.id)
    timestamped = f"{headers['X-Webhook-Timestamp']}.".encode() + posted.body
    for name, signed in (
        ("X-Webhook-Signature", posted.body),
        ("X-Webhook-Signature-V2", timestamped),
    ):
        assert headers[name] == "sha256=" + hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert (row.status, row.attempts, row.status_code, row.response_body) == (
        "sent",
        1,
        200,
        "thanks",
    )
    assert row.sent_at is not None


def test_an_interrupted_delivery_is_retried_immediately(ranges: FetchJobHarness) -> None:
    class Hanging(FakeWebhookSender):
        async def send(self, *_: object) -> WebhookAnswer:
            await asyncio.sleep(3600)
            raise AssertionError

    async def deliver_for_a_moment() -> None:
        async with asyncio.timeout(0.3):
            await deliver_job_webhooks(Hanging(), database=ranges.database, hold_seconds=60)

    complete_job(ranges)
    with pytest.raises(TimeoutError):
        asyncio.run(deliver_for_a_moment())
    assert deliver(ranges, FakeWebhookSender()) == 1
    assert [row.status for row in ranges.deliveries] == ["sent"]


def test_webhooks_of_one_job_are_delivered_in_order(ranges: FetchJobHarness) -> None:
    complete_job(ranges, DAYS[:3])
    sender = FakeWebhookSender([WebhookAnswer(503, "busy"), ACCEPTED])
    assert [deliver(ranges, sender) for _ in range(2)] == [1, 0]
    make_retries_due(ranges)
    assert [deliver(ranges, sender) for _ in range(4)] == [1, 1, 1, 0]
    completed = [json.loads(posted.body)["data"]["completedDays"] for posted in sender.posted]
    assert completed == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "answer",
    [WebhookAnswer(500, "broken"), WebhookAnswer(404, "not found"), TransientError("silent")],
)
def test_a_delivery_is_attempted_three_times_with_growing_delays(
    ranges: FetchJobHarness, answer: WebhookAnswer | Exception
) -> None:
    complete_job(ranges)
    sender = FakeWebhookSender([answer])
    for seconds in (2, 4):
        before = current_time(ranges)
        assert deliver(ranges, sender) == 1
        retry_at, wait = ranges.deliveries[0].next_retry_at, timedelta(seconds=seconds)
        assert (
            before + wait - CLOCKS_APART <= retry_at <= current_time(ranges) + wait + CLOCKS_APART
        )
        make_retries_due(ranges)
    assert deliver(ranges, sender) == 1
    make_retries_due(ranges)
    assert deliver(ranges, sender) == 0
    [row] = ranges.deliveries
    assert (row.status, row.attempts, len(sender.posted)) == ("failed", 3, 3)
    assert [posted.headers["X-Webhook-Attempt"] for posted in sender.posted] == ["1", "2", "3"]
    assert row.last_error
    assert len({posted.body for posted in sender.posted}) == 1


def test_a_permanent_delivery_error_is_not_retried(ranges: FetchJobHarness) -> None:
    complete_job(ranges)
    deliver(ranges, FakeWebhookSender([PermanentError("webhookUrl IP not allowed")]))
    [row] = ranges.deliveries
    assert (row.status, row.last_error, row.status_code) == (
        "failed",
        "webhookUrl IP not allowed",
        None,
    )


def test_a_worker_that_dies_during_a_delivery_uses_up_an_attempt(ranges: FetchJobHarness) -> None:
    class Killed(BaseException):
        pass

    class DyingSender(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            raise Killed

    complete_job(ranges)
    for _ in range(3):
        with pytest.raises(Killed):
            deliver(ranges, DyingSender())
        assert deliver(ranges, FakeWebhookSender()) == 0  # the dead worker still holds it
        make_retries_due(ranges)
    sender = FakeWebhookSender()
    deliver(ranges, sender)
    [row] = ranges.deliveries
    assert (row.status, row.last_error, sender.posted) == (
        "failed",
        "Its delivery broke off every time",
        [],
    )


def test_a_worker_whose_hold_has_expired_writes_nothing(ranges: FetchJobHarness) -> None:
    class SlowSender(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            make_retries_due(ranges)  # the hold expires, and another worker delivers first
            await asyncio.to_thread(deliver, ranges, FakeWebhookSender())
            return WebhookAnswer(500, "late")

    complete_job(ranges)
    deliver(ranges, SlowSender())
    [row] = ranges.deliveries
    assert (row.status, row.attempts, row.status_code) == ("sent", 2, 200)


def test_a_job_without_a_webhook_stores_no_deliveries(ranges: FetchJobHarness) -> None:
    ranges.work(ranges.job(DAYS[0], DAYS[1]))
    assert ranges.deliveries == []
