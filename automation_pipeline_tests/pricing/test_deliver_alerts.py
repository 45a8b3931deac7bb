"""The webhook of an alert: signed, tried as often as is allowed, and how it stands is written
down."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from automation_pipeline.clients.webhooks import WebhookClient
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import (
    AlertSeverity,
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    mac_of_moment,
)
from automation_pipeline.pricing.models.history import AlertCandidate, PricingAlertName
from automation_pipeline.pricing.monitoring import ALERTS_AT_ONCE, deliver_alerts
from automation_pipeline.pricing.queries.monitoring import add_alerts
from automation_pipeline.pricing.tables import PricingAlertRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.clients.receiver import receiver, says
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.post import FakeWebhookSender
from automation_pipeline_tests.pricing.ended import EVERY_ALERT, alert_rows

URL = "https://hooks.example.com/prices"
SECRET = "s3cret"
PATIENCE = DeliveryPolicy(attempts=3, backoff=Backoff(base_seconds=10, cap_seconds=60))
BACKLOG = AlertCandidate(
    PricingAlertName.DEAD_LETTERS,
    AlertSeverity.CRITICAL,
    "101 failed price changes wait for somebody.",
)


def raised(database: Database, clock: StandingClock, count: int = 1) -> None:
    with database.transaction() as session:
        add_alerts(
            session,
            [(f"p{number}", BACKLOG) for number in range(count)],
            clock.now(),
            webhooks=EVERY_ALERT,
        )


def deliver(
    database: Database, sender: WebhookSender, url: str = URL, secret: str | None = SECRET
) -> int:
    work = deliver_alerts(
        sender=sender,
        secret=secret,
        webhooks=dict.fromkeys(AlertSeverity, url),
        patience=PATIENCE,
        database=database,
    )
    return asyncio.run(work)


def wait_over(database: Database) -> None:
    with database.transaction() as session:
        session.execute(update(PricingAlertRow).values(next_retry_at=database_now(-1.0)))


def client(*origins: str) -> WebhookClient:
    return WebhookClient(now=lambda: datetime.now(UTC), allowed_origins=origins, timeout_seconds=30)


def test_a_receiver_is_told_once_and_can_check_who_says_it(
    database: Database, clock: StandingClock
) -> None:
    raised(database, clock)
    with receiver() as hook:
        tried = [deliver(database, client(hook.url), f"{hook.url}/prices") for _ in range(2)]
        [call] = hook.calls
    [row] = alert_rows(database)
    assert (tried, call.method, call.path) == ([1, 0], "POST", "/prices")
    assert json.loads(call.body) == {
        "event": "pricing.alert",
        "alert": {
            "id": str(row.id),
            "name": "dlq_size",
            "severity": "critical",
            "message": "101 failed price changes wait for somebody.",
            "project": "p0",
            "raisedAt": "2026-05-04T10:00:00.000Z",
        },
    }
    told = {name.lower(): value for name, value in call.headers.items()}
    assert (told["x-automation-event"], told["x-automation-delivery"]) == (
        "pricing.alert",
        f"pricing-alert-{row.id}",
    )
    moment, _, mac = told["x-automation-signature"].removeprefix("t=").partition(",v1=")
    assert mac == mac_of_moment(SECRET, call.body, moment)
    assert (row.status, row.attempts, row.status_code, row.last_error) == ("sent", 1, 200, None)
    assert row.sent_at is not None


def test_without_a_secret_nothing_is_signed(database: Database, clock: StandingClock) -> None:
    raised(database, clock)
    sender = FakeWebhookSender()
    deliver(database, sender, secret=None)
    assert "X-Automation-Signature" not in sender.posted[0].headers


def test_a_receiver_that_is_down_is_tried_again_with_the_same_words(
    database: Database, clock: StandingClock
) -> None:
    raised(database, clock)
    with receiver() as hook:
        hook.answer(says(503), says(200))
        deliver(database, client(hook.url), hook.url)
        [row] = alert_rows(database)
        assert (row.status, row.attempts, row.last_error) == (
            "pending",
            1,
            "The receiver answered 503",
        )
        assert deliver(database, client(hook.url), hook.url) == 0
        wait_over(database)
        assert deliver(database, client(hook.url), hook.url) == 1
        first, second = hook.calls
    assert first.body == second.body
    assert [(row.status, row.attempts) for row in alert_rows(database)] == [("sent", 2)]


@pytest.mark.parametrize("answer", [WebhookAnswer(500, "broken"), TransientError("silent")])
def test_it_is_given_up_after_the_last_attempt(
    database: Database, clock: StandingClock, answer: WebhookAnswer | Exception
) -> None:
    raised(database, clock)
    sender = FakeWebhookSender([answer])
    for _ in range(5):
        deliver(database, sender)
        wait_over(database)
    [row] = alert_rows(database)
    assert (row.status, row.attempts, len(sender.posted)) == ("failed", 3, 3)
    assert row.last_error


@pytest.mark.parametrize(
    ("url", "origins", "reason"),
    [
        ("http://127.0.0.1:9/prices", (), "IP not allowed"),
        ("http://169.254.169.254/latest", (), "IP not allowed"),
        (
            "https://hooks.example.com/prices",
            ("https://other.example.com",),
            "WEBHOOK_ALLOWED_ORIGINS",
        ),
    ],
)
def test_an_address_that_we_do_not_call_is_refused_with_the_reason(
    database: Database, clock: StandingClock, url: str, origins: tuple[str, ...], reason: str
) -> None:
    raised(database, clock)
    deliver(database, client(*origins), url)
    [row] = alert_rows(database)
    assert (row.status, row.attempts, row.status_code) == ("failed", 1, None)
    assert reason in (row.last_error or "")


def test_a_tick_carries_no_more_than_it_can(database: Database, clock: StandingClock) -> None:
    raised(database, clock, ALERTS_AT_ONCE + 1)
    sender = FakeWebhookSender()
    assert [deliver(database, sender) for _ in range(3)] == [ALERTS_AT_ONCE, 1, 0]
    assert {row.status for row in alert_rows(database)} == {"sent"}


def test_who_dies_over_an_alert_has_used_up_an_attempt(
    database: Database, clock: StandingClock
) -> None:
    class Killed(BaseException):
        pass

    class Deadly(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            raise Killed

    raised(database, clock)
    for _ in range(3):
        with pytest.raises(Killed):
            deliver(database, Deadly())
        assert deliver(database, FakeWebhookSender()) == 0  # held for who may yet be at it
        wait_over(database)
    sender = FakeWebhookSender()
    deliver(database, sender)
    [row] = alert_rows(database)
    assert (row.status, row.last_error, sender.posted) == (
        "failed",
        "Its delivery broke off every time",
        [],
    )


def test_whoever_comes_late_writes_nothing(database: Database, clock: StandingClock) -> None:
    class Slow(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            wait_over(database)  # its hold has ended, and somebody else gets through first
            await asyncio.to_thread(deliver, database, FakeWebhookSender())
            return WebhookAnswer(500, "late")

    raised(database, clock)
    deliver(database, Slow())
    [row] = alert_rows(database)
    assert (row.status, row.attempts, row.status_code) == ("sent", 2, 200)
