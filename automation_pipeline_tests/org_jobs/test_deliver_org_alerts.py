"""The webhook of an alert about organisations' jobs: signed, told once, and how it stands is
written down."""

import asyncio
import json

import pytest

from automation_pipeline.core.webhooks import (
    AlertSeverity,
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    signature,
)
from automation_pipeline.org_jobs.alerts import DELIVERY_BATCH, deliver_org_alerts
from automation_pipeline.org_jobs.queries.health import add_alerts
from automation_pipeline.org_jobs.rules.health import OrgAlertCondition, OrgJobsAlertName
from automation_pipeline_tests.fakes.post import FakeWebhookSender
from automation_pipeline_tests.org_jobs.bench import ORG, Bench

SECRET = "s3cret"
URL = "https://hooks.example.com/jobs"
DOWN = OrgAlertCondition(
    org_id=ORG,
    name=OrgJobsAlertName.SERVER_DOWN,
    severity=AlertSeverity.CRITICAL,
    subject="7",
    message="Host 'h1' has not been heard of for 16 min: its servers are taken for down.",
)


def raised(bench: Bench, count: int = 1) -> None:
    bench.organisation()
    with bench.database.transaction() as session:
        add_alerts(session, [DOWN] * count, bench.now, has_webhook=True)


def deliver(bench: Bench, sender: WebhookSender, secret: str | None = SECRET) -> int:
    patience = DeliveryPolicy(attempts=1)
    return asyncio.run(
        deliver_org_alerts(
            webhooks=sender, secret=secret, url=URL, patience=patience, database=bench.database
        )
    )


def test_a_receiver_is_told_once_and_can_check_who_says_it(org_bench: Bench) -> None:
    raised(org_bench)
    sender = FakeWebhookSender()
    assert [deliver(org_bench, sender) for _ in range(2)] == [1, 0]
    [posted], [row] = sender.posted, org_bench.alerts()
    assert posted.url == URL
    assert json.loads(posted.body) == {
        "event": "org_jobs.alert",
        "alert": {
            "id": str(row.id),
            "name": "server_down",
            "severity": "critical",
            "subject": "7",
            "message": DOWN.message,
            "orgId": ORG,
            "raisedAt": "2026-05-04T10:00:00.000Z",
        },
    }
    told = posted.headers
    assert (told["X-Automation-Event"], told["X-Automation-Delivery"]) == (
        "org_jobs.alert",
        f"org-jobs-alert-{row.id}",
    )
    moment = int(told["X-Automation-Signature"].removeprefix("t=").partition(",")[0])
    assert told["X-Automation-Signature"] == signature(SECRET, posted.body, moment)
    assert (row.status, row.attempts, row.status_code, row.sent_at is not None) == (
        "sent",
        1,
        200,
        True,
    )


@pytest.mark.parametrize("answer", [WebhookAnswer(500, "broken"), WebhookAnswer(404, "nobody")])
def test_what_cannot_be_told_is_kept_as_failed(org_bench: Bench, answer: WebhookAnswer) -> None:
    raised(org_bench)
    deliver(org_bench, FakeWebhookSender([answer]), secret=None)
    [row] = org_bench.alerts()
    assert (row.status, row.status_code) == ("failed", answer.status)


def test_a_tick_carries_no_more_than_it_can(org_bench: Bench) -> None:
    raised(org_bench, DELIVERY_BATCH + 1)
    sender = FakeWebhookSender()
    assert [deliver(org_bench, sender) for _ in range(3)] == [DELIVERY_BATCH, 1, 0]
