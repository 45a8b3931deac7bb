"""Each message is sent, tried again or given up, and its record says which."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import timedelta

import pytest

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.post import (
    HOOK,
    a_post_office,
    an_ended_run,
    outbox,
    records,
    relay,
)
from automation_pipeline_tests.fakes.post import TAKEN, FakeMailSender, FakeWebhookSender

EMAILS = ["anna@example.com", "bert@example.com"]


def test_a_webhook_is_sent_once_and_signed(database: Database, clock: Clock) -> None:
    [run] = an_ended_run(database, clock, ["5"])
    webhooks = FakeWebhookSender()
    for _ in range(2):
        relay(a_post_office(webhooks), database)
    [posted] = webhooks.posted
    assert posted.url == HOOK
    assert json.loads(posted.body) == run.payload
    assert posted.headers["X-Automation-Delivery"] == run.key
    stamp, mac = (
        part.partition("=")[2] for part in posted.headers["X-Automation-Signature"].split(",")
    )
    assert (
        mac == hmac.new(b"s3cret", f"{stamp}.".encode() + posted.body, hashlib.sha256).hexdigest()
    )
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.response_body) == (
        "sent",
        1,
        200,
        "thanks",
    )
    assert row.sent_at is not None
    assert outbox(database)[0].published_at is not None


def test_emails_are_sent_one_a_receiver(database: Database, clock: Clock) -> None:
    run = an_ended_run(database, clock, webhookUrl=None, notifyEmails=EMAILS)
    mail = FakeMailSender()
    relay(a_post_office(FakeWebhookSender(), mail), database)
    assert sorted(mail.sent) == [
        (each.target, each.payload["subject"], each.payload["text"], each.key) for each in run
    ]
    assert [(row.status, row.attempts) for row in records(database)] == [("sent", 1)] * 2


def test_transient_delivery_errors_are_retried_and_the_result_is_stored(
    database: Database, clock: Clock
) -> None:
    an_ended_run(database, clock)
    webhooks = FakeWebhookSender([WebhookAnswer(503, "busy"), TransientError("silent"), TAKEN])
    relay(a_post_office(webhooks), database)
    assert len(webhooks.posted) == 3
    assert len({posted.headers["X-Automation-Delivery"] for posted in webhooks.posted}) == 1
    assert len({posted.body for posted in webhooks.posted}) == 1
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.last_error) == ("sent", 3, 200, None)


def test_it_is_given_up_after_its_attempts(database: Database, clock: Clock) -> None:
    an_ended_run(database, clock)
    webhooks = FakeWebhookSender([WebhookAnswer(503, "busy")])
    relay(a_post_office(webhooks, attempts=3), database)
    assert len(webhooks.posted) == 3
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.response_body) == (
        "failed",
        3,
        503,
        "busy",
    )
    assert (row.last_error, row.sent_at) == ("The receiver answered 503", None)
    assert relay(a_post_office(webhooks), database).messages == 0


@pytest.mark.parametrize(
    "refusal", [WebhookAnswer(404, "who"), PermanentError("webhookUrl IP not allowed")]
)
def test_permanent_delivery_errors_are_not_retried(
    database: Database, clock: Clock, refusal: WebhookAnswer | Exception
) -> None:
    an_ended_run(database, clock)
    webhooks = FakeWebhookSender([refusal])
    relay(a_post_office(webhooks), database)
    [row] = records(database)
    assert (row.status, row.attempts, len(webhooks.posted)) == ("failed", 1, 1)


def test_between_attempts_it_waits(database: Database, clock: Clock) -> None:
    an_ended_run(database, clock)
    webhooks = FakeWebhookSender([WebhookAnswer(503, "busy")])
    post = a_post_office(webhooks, backoff=Backoff(base_seconds=10, cap_seconds=3600))
    for _ in range(2):
        relay(post, database)
    assert len(webhooks.posted) == 1
    [event], [row] = outbox(database), records(database)
    assert event.available_at - clock.now() > timedelta(seconds=10)
    assert (event.last_error, row.status, row.attempts) == (
        "The receiver answered 503",
        "pending",
        1,
    )


def test_an_email_without_a_mail_server_fails_with_the_reason(
    database: Database, clock: Clock
) -> None:
    an_ended_run(database, clock, webhookUrl=None, notifyEmails=EMAILS[:1])
    relay(a_post_office(FakeWebhookSender(), None), database)
    [row] = records(database)
    assert (row.status, row.attempts) == ("failed", 1)
    assert row.last_error == "E-mail is not configured (set SMTP_HOST, and SMTP_FROM or SMTP_USER)"


def test_a_bug_in_one_delivery_stops_no_other_and_is_given_up_in_time(
    database: Database, clock: Clock
) -> None:
    bad = "https://bad.example.com/"
    for url in (HOOK, bad, HOOK):
        an_ended_run(database, clock, webhookUrl=url)
    webhooks = FakeWebhookSender(by_url={bad: ZeroDivisionError("s3cret of the body")})
    relay(a_post_office(webhooks), database)
    first, broken, last = records(database)
    assert (first.status, last.status) == ("sent", "sent")
    assert (broken.status, broken.attempts, broken.last_error) == (
        "failed",
        3,
        "A bug: ZeroDivisionError",
    )


def test_a_receiver_that_never_answers_delays_no_other(database: Database, clock: Clock) -> None:
    slow = "https://slow.example.com/"
    for url in (slow, HOOK):
        an_ended_run(database, clock, webhookUrl=url)

    class Slow(FakeWebhookSender):
        async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
            if url == slow:
                await asyncio.Event().wait()
            return await super().send(url, body, headers)

    relay(a_post_office(Slow(), attempts=1, attempt_seconds=0.05), database)
    waited, sent = records(database)
    assert (waited.status, waited.last_error) == (
        "failed",
        "The receiver did not answer within 0.05 s",
    )
    assert sent.status == "sent"


def test_an_event_without_its_message_counts_as_published(database: Database, clock: Clock) -> None:
    an_ended_run(database, clock)
    with database.transaction() as session:
        session.delete(session.merge(records(database)[0]))
    webhooks = FakeWebhookSender()
    relay(a_post_office(webhooks), database)
    assert webhooks.posted == []
    assert outbox(database)[0].published_at is not None
