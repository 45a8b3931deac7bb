"""The webhooks of a job: signed, in order, three attempts, and how each stands is written down."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline.fiches.fetch_jobs import deliver_job_webhooks
from automation_pipeline.fiches.tables import FetchDeliveryRow
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.post import TAKEN, FakeWebhookSender
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, Ranges

CLOCKS_APART = timedelta(milliseconds=20)  # the database tells the present in two ways


@pytest.fixture
def ranges(database: Database, clock: StandingClock) -> Ranges:
    return Ranges(database, clock)


def deliver(ranges: Ranges, sender: FakeWebhookSender, hold_seconds: float = 60) -> int:
    return asyncio.run(
        deliver_job_webhooks(sender, database=ranges.database, hold_seconds=hold_seconds)
    )


def wait_over(ranges: Ranges) -> None:
    with ranges.database.transaction() as session:
        session.execute(update(FetchDeliveryRow).values(next_retry_at=database_now()))


def present(ranges: Ranges) -> datetime:
    with ranges.database.reading() as session:
        return database_time(session)


def worked(ranges: Ranges, days: Sequence[date] = DAYS[:1], webhook_every: int = 1) -> None:
    ranges.work(ranges.job(days[0], days[-1], webhook=HOOK), webhook_every=webhook_every)


def test_a_webhook_is_sent_once_and_its_receiver_can_check_it(ranges: Ranges) -> None:
    worked(ranges)
    sender = FakeWebhookSender()
    assert [deliver(ranges, sender) for _ in range(2)] == [1, 0]
    [posted], [row], [job] = sender.posted, ranges.deliveries, ranges.jobs
    assert posted.url == HOOK.url
    body = json.loads(posted.body)
    assert (body["event"], body["jobId"], body["data"]["progress"]) == ("complete", job.id, 100)
    told = posted.headers
    assert (told["X-Webhook-Event"], told["X-Webhook-Job-Id"], told["X-Webhook-Attempt"]) == (
        "complete",
        job.id,
        "1",
    )
    assert told["X-Webhook-Delivery-Id"] == str(row.id)
    dated = f"{told['X-Webhook-Timestamp']}.".encode() + posted.body
    for name, signed in (("X-Webhook-Signature", posted.body), ("X-Webhook-Signature-V2", dated)):
        assert told[name] == "sha256=" + hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert (row.status, row.attempt, row.status_code, row.response_body) == (
        "sent",
        1,
        200,
        "thanks",
    )
    assert row.sent_at is not None


def test_an_interrupted_delivery_is_tried_again_at_once(ranges: Ranges) -> None:
    class Hanging(FakeWebhookSender):
        async def send(self, *_: object) -> WebhookAnswer:
            await asyncio.sleep(3600)
            raise AssertionError

    async def deliver_for_a_moment() -> None:
        async with asyncio.timeout(0.3):
            await deliver_job_webhooks(Hanging(), database=ranges.database, hold_seconds=60)

    worked(ranges)
    with pytest.raises(TimeoutError):
        asyncio.run(deliver_for_a_moment())
    assert deliver(ranges, FakeWebhookSender()) == 1
    assert [row.status for row in ranges.deliveries] == ["sent"]


def test_news_of_one_job_arrive_in_their_order(ranges: Ranges) -> None:
    worked(ranges, DAYS[:3])
    sender = FakeWebhookSender([WebhookAnswer(503, "busy"), TAKEN])
    assert [deliver(ranges, sender) for _ in range(2)] == [1, 0]
    wait_over(ranges)
    assert [deliver(ranges, sender) for _ in range(4)] == [1, 1, 1, 0]
    told = [json.loads(posted.body)["data"]["completedDays"] for posted in sender.posted]
    assert told == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "answer", [WebhookAnswer(500, "broken"), WebhookAnswer(404, "nobody"), TransientError("silent")]
)
def test_three_attempts_are_made_with_growing_waits(
    ranges: Ranges, answer: WebhookAnswer | Exception
) -> None:
    worked(ranges)
    sender = FakeWebhookSender([answer])
    for seconds in (2, 4):
        before = present(ranges)
        assert deliver(ranges, sender) == 1
        again_at, wait = ranges.deliveries[0].next_retry_at, timedelta(seconds=seconds)
        assert before + wait - CLOCKS_APART <= again_at <= present(ranges) + wait + CLOCKS_APART
        wait_over(ranges)
    assert deliver(ranges, sender) == 1
    wait_over(ranges)
    assert deliver(ranges, sender) == 0
    [row] = ranges.deliveries
    assert (row.status, row.attempt, len(sender.posted)) == ("failed", 3, 3)
    assert [posted.headers["X-Webhook-Attempt"] for posted in sender.posted] == ["1", "2", "3"]
    assert row.last_error
    assert len({posted.body for posted in sender.posted}) == 1


def test_an_address_that_is_not_called_is_given_up_at_once(ranges: Ranges) -> None:
    worked(ranges)
    deliver(ranges, FakeWebhookSender([PermanentError("webhookUrl IP not allowed")]))
    [row] = ranges.deliveries
    assert (row.status, row.last_error, row.status_code) == (
        "failed",
        "webhookUrl IP not allowed",
        None,
    )


def test_who_dies_over_a_message_has_used_up_an_attempt(ranges: Ranges) -> None:
    class Killed(BaseException):
        pass

    class Deadly(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            raise Killed

    worked(ranges)
    for _ in range(3):
        with pytest.raises(Killed):
            deliver(ranges, Deadly())
        assert deliver(ranges, FakeWebhookSender()) == 0  # held for who may yet be at it
        wait_over(ranges)
    sender = FakeWebhookSender()
    deliver(ranges, sender)
    [row] = ranges.deliveries
    assert (row.status, row.last_error, sender.posted) == (
        "failed",
        "Its delivery broke off every time",
        [],
    )


def test_whoever_comes_late_writes_nothing(ranges: Ranges) -> None:
    class Slow(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            wait_over(ranges)  # its hold has ended, and somebody else gets through first
            await asyncio.to_thread(deliver, ranges, FakeWebhookSender())
            return WebhookAnswer(500, "late")

    worked(ranges)
    deliver(ranges, Slow())
    [row] = ranges.deliveries
    assert (row.status, row.attempt, row.status_code) == ("sent", 2, 200)


def test_without_a_webhook_nothing_is_written(ranges: Ranges) -> None:
    ranges.work(ranges.job(DAYS[0], DAYS[1]))
    assert ranges.deliveries == []
