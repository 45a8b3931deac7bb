"""Dead letters and alerts."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier, BrokenBarrierError

import pytest
from sqlalchemy import update

from automation_pipeline.clients.webhooks import WebhookClient
from automation_pipeline.core.alerts import (
    AlertCondition,
    AlertReceiver,
    AlertReceivers,
    AlertSeverity,
)
from automation_pipeline.core.errors import InvalidInputError, TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import (
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    mac_with_time,
)
from automation_pipeline.pricing import monitoring
from automation_pipeline.pricing.models.shop import FailureKind
from automation_pipeline.pricing.monitoring import (
    PRICING_ALERTS,
    acknowledge_dead_letters,
    dead_letters,
    list_alerts,
    report_dead_letters,
    retry_dead_letters,
)
from automation_pipeline.pricing.rules.monitoring import (
    DeadLetterReport,
    PricingAlertName,
    RetriedRuns,
)
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.pricing.tables import PricingAlertRow
from automation_pipeline.storage.alerts import (
    add_alerts,
    deliver_alerts,
    raise_alerts,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.clients.receiver import receiver, respond
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.senders import FakeWebhookSender
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import (
    PricingHarness,
    failed_target_ids,
    run_with_failures,
)
from automation_pipeline_tests.pricing.rows import (
    EVERY_ALERT,
    alert_rows,
    change_targets,
    make_ended_run,
    make_rule,
    make_run,
    make_shop,
)

LONG_AGO = timedelta(days=2)


def raise_and_list(
    database: Database, clock: FakeClock, *, receivers: AlertReceivers = EVERY_ALERT
) -> list[tuple[str, str, str]]:
    found = raise_alerts(PRICING_ALERTS, receivers, database=database, clock=clock)
    return [(one.subject, one.name, one.severity) for one in found]


@pytest.mark.parametrize(
    ("applied", "failed", "severity"),
    [
        (97, 3, None),
        (96, 4, "warning"),
        (90, 10, "warning"),
        (89, 11, "critical"),
        (9, 10, None),
        (10, 10, "critical"),
    ],
)
def test_thresholds_of_the_success_rate_alert(
    database: Database, clock: FakeClock, applied: int, failed: int, severity: str | None
) -> None:
    make_ended_run(database, clock, applied, failed)
    assert raise_and_list(database, clock) == (
        [("default", "success_rate", severity)] if severity else []
    )


@pytest.mark.parametrize(
    ("dead_letter_count", "severity"),
    [(50, None), (51, "warning"), (100, "warning"), (101, "critical")],
)
def test_thresholds_of_the_dead_letter_alert(
    database: Database, clock: FakeClock, dead_letter_count: int, severity: str | None
) -> None:
    make_ended_run(database, clock, 1, dead_letter_count, ended=LONG_AGO)
    assert raise_and_list(database, clock) == (
        [("default", "dlq_size", severity)] if severity else []
    )


@pytest.mark.parametrize(("refusals", "is_raised"), [(3, False), (4, True)])
def test_threshold_of_the_rate_limit_alert(
    database: Database, clock: FakeClock, refusals: int, is_raised: bool
) -> None:
    make_shop(database, *[10.0] * refusals)
    make_run(database, make_rule(database, clock), "APPLYING", clock.now(), ["QUEUED"])
    assert raise_and_list(database, clock) == (
        [("default", "rate_limits", "warning")] if is_raised else []
    )


def test_an_open_circuit_raises_a_critical_alert_per_project_with_active_runs(
    database: Database, clock: FakeClock
) -> None:
    make_shop(database, circuit="open")
    assert raise_and_list(database, clock) == []
    make_run(database, make_rule(database, clock), "APPLYING", clock.now(), ["QUEUED"])
    assert raise_and_list(database, clock) == [("default", "circuit_open", "critical")]


def test_an_alert_is_stored_with_its_message(database: Database, clock: FakeClock) -> None:
    make_ended_run(database, clock, 89, 11, project_id="shoes")
    raise_and_list(database, clock)
    [row] = alert_rows(database)
    assert (row.project_id, row.name, row.severity, row.raised_at) == (
        "shoes",
        "success_rate",
        "critical",
        clock.now(),
    )
    assert row.message == "Only 89.0% of 100 price changes succeeded."
    assert (row.status, row.attempts) == ("pending", 0)


def test_an_alert_without_a_receiver_is_stored_as_unsent(
    database: Database, clock: FakeClock
) -> None:
    make_ended_run(database, clock, 89, 11)
    raise_and_list(
        database,
        clock,
        receivers={AlertSeverity.WARNING: AlertReceiver("https://hooks.example.com")},
    )
    assert [row.status for row in alert_rows(database)] == ["unsent"]


@pytest.mark.parametrize(
    ("dead_letter_count", "severity", "minutes"), [(51, "warning", 30), (101, "critical", 15)]
)
def test_an_alert_is_raised_again_after_its_cooldown(
    database: Database, clock: FakeClock, dead_letter_count: int, severity: str, minutes: int
) -> None:
    make_ended_run(database, clock, 1, dead_letter_count, ended=LONG_AGO)
    once = [("default", "dlq_size", severity)]
    assert [raise_and_list(database, clock), raise_and_list(database, clock)] == [once, []]
    clock.advance(timedelta(minutes=minutes) - timedelta(seconds=1))
    assert raise_and_list(database, clock) == []
    clock.advance_one_second()
    assert raise_and_list(database, clock) == once


def test_only_a_higher_severity_is_raised_during_the_cooldown(
    database: Database, clock: FakeClock
) -> None:
    run_id = make_ended_run(database, clock, 1, 101, ended=LONG_AGO)
    change_targets(database, run_id, first=10, acknowledged_at=clock.now())
    assert raise_and_list(database, clock) == [("default", "dlq_size", "warning")]
    change_targets(database, run_id, acknowledged_at=None)
    assert raise_and_list(database, clock) == [("default", "dlq_size", "critical")]
    change_targets(database, run_id, first=10, acknowledged_at=clock.now())
    assert raise_and_list(database, clock) == []


def test_the_alert_cooldown_is_per_project(database: Database, clock: FakeClock) -> None:
    make_ended_run(database, clock, 10, 11, project_id="shoes")
    assert raise_and_list(database, clock) == [("shoes", "success_rate", "critical")]
    make_ended_run(database, clock, 10, 11, project_id="hats")
    assert raise_and_list(database, clock) == [("hats", "success_rate", "critical")]


@pytest.mark.both_databases
def test_two_concurrent_calls_raise_an_alert_once(database: Database, clock: FakeClock) -> None:
    make_ended_run(database, clock, 89, 11)
    found, writing = Barrier(2), Barrier(2)

    def conditions(session: Session, now: datetime) -> Sequence[AlertCondition]:
        conditions_now = PRICING_ALERTS.conditions(session, now)
        found.wait(10)
        return conditions_now

    def columns(condition: AlertCondition) -> Mapping[str, object]:
        with suppress(BrokenBarrierError):  # the other call waits for the lock
            writing.wait(0.5)
        return PRICING_ALERTS.columns(condition)

    alerts = replace(PRICING_ALERTS, conditions=conditions, columns=columns)
    with ThreadPoolExecutor(2) as pool:
        raised_at_once = pool.map(
            lambda _: raise_alerts(alerts, EVERY_ALERT, database=database, clock=clock), range(2)
        )
    assert sorted(len(raised) for raised in raised_at_once) == [0, 1]
    assert [row.name for row in alert_rows(database)] == ["success_rate"]


def test_alerts_are_listed_newest_first_by_project(database: Database, clock: FakeClock) -> None:
    make_ended_run(database, clock, 10, 60, project_id="hats")
    raise_and_list(database, clock)
    make_ended_run(database, clock, 10, 11, project_id="shoes")
    raise_and_list(database, clock)
    with database.reading() as session:
        everything, page = list_alerts(session, None, 9, 0), list_alerts(session, None, 1, 1)
        of_hats = list_alerts(session, "hats", 9, 0)
        of_gloves = list_alerts(session, "gloves", 9, 0)
    assert [one.project_id for one in everything] == ["shoes", "hats", "hats"]
    assert (page, of_hats) == (everything[1:2], everything[1:])
    assert of_gloves == []


URL = "https://hooks.example.com/prices"
SECRET = "s3cret"
RETRY_POLICY = DeliveryPolicy(attempts=3, backoff=Backoff(base_seconds=10, cap_seconds=60))


def backlog_alert(project: str) -> AlertCondition:
    return AlertCondition(
        name=PricingAlertName.DEAD_LETTERS,
        severity=AlertSeverity.CRITICAL,
        subject=project,
        message="101 failed price changes wait for an operator.",
    )


def stored_alert(database: Database, clock: FakeClock, count: int = 1) -> None:
    with database.transaction() as session:
        add_alerts(
            session,
            PRICING_ALERTS,
            [backlog_alert(f"p{number}") for number in range(count)],
            clock.now(),
            EVERY_ALERT,
        )


def deliver(
    database: Database,
    sender: WebhookSender,
    url: str = URL,
    secret: str | None = SECRET,
    severities: Sequence[AlertSeverity] = tuple(AlertSeverity),
) -> int:
    work = deliver_alerts(
        PRICING_ALERTS,
        dict.fromkeys(severities, AlertReceiver(url)),
        sender=sender,
        secret=secret,
        policy=RETRY_POLICY,
        database=database,
    )
    return asyncio.run(work)


def end_wait(database: Database) -> None:
    with database.transaction() as session:
        session.execute(update(PricingAlertRow).values(next_retry_at=database_now(-1.0)))


def client(*origins: str) -> WebhookClient:
    return WebhookClient(now=lambda: datetime.now(UTC), allowed_origins=origins, timeout_seconds=30)


def test_an_alert_is_delivered_once_and_signed(database: Database, clock: FakeClock) -> None:
    stored_alert(database, clock)
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
            "message": "101 failed price changes wait for an operator.",
            "project": "p0",
            "raisedAt": "2026-05-04T10:00:00.000Z",
        },
    }
    headers = {name.lower(): value for name, value in call.headers.items()}
    assert (headers["x-automation-event"], headers["x-automation-delivery"]) == (
        "pricing.alert",
        f"pricing-alert-{row.id}",
    )
    moment, _, mac = headers["x-automation-signature"].removeprefix("t=").partition(",v1=")
    assert mac == mac_with_time(SECRET, call.body, moment)
    assert (row.status, row.attempts, row.status_code, row.last_error) == ("sent", 1, 200, None)
    assert row.sent_at is not None


def test_an_alert_waits_without_receivers_and_fails_without_one_for_its_severity(
    database: Database, clock: FakeClock
) -> None:
    stored_alert(database, clock)
    sender = FakeWebhookSender()
    assert deliver(database, sender, severities=()) == 0
    assert [row.status for row in alert_rows(database)] == ["pending"]
    assert deliver(database, sender, severities=[AlertSeverity.WARNING]) == 1
    assert [(row.status, row.last_error) for row in alert_rows(database)] == [
        ("failed", "No webhook is configured for alerts of severity critical.")
    ]
    assert sender.posted == []


def test_without_a_secret_the_webhook_has_no_signature(
    database: Database, clock: FakeClock
) -> None:
    stored_alert(database, clock)
    sender = FakeWebhookSender()
    deliver(database, sender, secret=None)
    assert "X-Automation-Signature" not in sender.posted[0].headers


def test_a_failed_delivery_is_repeated_with_the_same_body(
    database: Database, clock: FakeClock
) -> None:
    stored_alert(database, clock)
    with receiver() as hook:
        hook.answer(respond(503), respond(200))
        deliver(database, client(hook.url), hook.url)
        [row] = alert_rows(database)
        assert (row.status, row.attempts, row.last_error) == (
            "pending",
            1,
            "The receiver answered 503",
        )
        assert deliver(database, client(hook.url), hook.url) == 0
        end_wait(database)
        assert deliver(database, client(hook.url), hook.url) == 1
        first, second = hook.calls
    assert first.body == second.body
    assert [(row.status, row.attempts) for row in alert_rows(database)] == [("sent", 2)]


@pytest.mark.parametrize("answer", [WebhookAnswer(500, "broken"), TransientError("silent")])
def test_a_delivery_fails_after_the_last_attempt(
    database: Database, clock: FakeClock, answer: WebhookAnswer | Exception
) -> None:
    stored_alert(database, clock)
    sender = FakeWebhookSender([answer])
    for _ in range(5):
        deliver(database, sender)
        end_wait(database)
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
def test_a_forbidden_webhook_address_fails_the_alert_with_the_reason(
    database: Database, clock: FakeClock, url: str, origins: tuple[str, ...], reason: str
) -> None:
    stored_alert(database, clock)
    deliver(database, client(*origins), url)
    [row] = alert_rows(database)
    assert (row.status, row.attempts, row.status_code) == ("failed", 1, None)
    assert reason in (row.last_error or "")


def test_a_tick_delivers_at_most_twenty_alerts(database: Database, clock: FakeClock) -> None:
    stored_alert(database, clock, 21)
    sender = FakeWebhookSender()
    assert [deliver(database, sender) for _ in range(3)] == [20, 1, 0]
    assert {row.status for row in alert_rows(database)} == {"sent"}


def test_a_killed_delivery_uses_an_attempt(database: Database, clock: FakeClock) -> None:
    class Killed(BaseException):
        pass

    class KillingSender(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            raise Killed

    stored_alert(database, clock)
    for _ in range(3):
        with pytest.raises(Killed):
            deliver(database, KillingSender())
        assert deliver(database, FakeWebhookSender()) == 0  # still claimed by the killed process
        end_wait(database)
    sender = FakeWebhookSender()
    deliver(database, sender)
    [row] = alert_rows(database)
    assert (row.status, row.last_error, sender.posted) == (
        "failed",
        "Its delivery broke off every time",
        [],
    )


def test_a_late_result_is_not_stored(database: Database, clock: FakeClock) -> None:
    class SlowSender(FakeWebhookSender):
        async def send(self, *args: object) -> WebhookAnswer:
            end_wait(database)  # its claim expired, and another process delivers first
            await asyncio.to_thread(deliver, database, FakeWebhookSender())
            return WebhookAnswer(500, "late")

    stored_alert(database, clock)
    deliver(database, SlowSender())
    [row] = alert_rows(database)
    assert (row.status, row.attempts, row.status_code) == ("sent", 2, 200)


KINDS = {"101": "server", "201": "not_found", "301": "not_found"}


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(4)), {"longest_pause_seconds": 0.0}
    )


def report_of(
    harness: PricingHarness, project_id: str = "default", **how: bool
) -> DeadLetterReport:
    return report_dead_letters(project_id, database=harness.database, clock=harness.clock, **how)


def test_dead_letters_are_counted_by_error_kind_with_recommendations(
    harness: PricingHarness,
) -> None:
    run = run_with_failures(harness, KINDS, hours=25)
    report = report_of(harness)
    assert (report.total_failed, report.retryable, report.stale) == (3, 1, 3)
    assert report.by_error_type == {FailureKind.NOT_FOUND: 2, FailureKind.SERVER: 1}
    assert (
        report.recommendations[0] == "2 variants no longer exist in the shop: re-sync the catalogue"
    )
    assert [int(one.target_id) for one in report.entries] == failed_target_ids(harness, run)
    assert {one.run_id for one in report.entries} == {str(run.id)}
    assert harness.events("automation.dlq.report") == []


def test_the_report_counts_all_dead_letters_and_lists_the_oldest(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with_failures(harness, KINDS)
    monkeypatch.setattr(monitoring, "MAX_ENTRIES", 2)
    report = report_of(harness)
    assert (report.total_failed, sum(report.by_error_type.values()), len(report.entries)) == (
        3,
        3,
        2,
    )


def test_the_report_lists_at_most_a_thousand_dead_letters(
    database: Database, clock: FakeClock
) -> None:
    make_ended_run(database, clock, 0, 1001)
    report = report_dead_letters("default", database=database, clock=clock)
    assert (report.total_failed, len(report.entries)) == (1001, 1000)


@pytest.mark.parametrize(("hours", "stale"), [(24.0, 0), (24.1, 3)])
def test_dead_letters_are_stale_after_a_day(
    harness: PricingHarness, hours: float, stale: int
) -> None:
    run_with_failures(harness, KINDS, hours=hours)
    assert report_of(harness).stale == stale


def test_dead_letter_reports_are_per_project(harness: PricingHarness) -> None:
    run_with_failures(harness, KINDS, project_id="toys")
    assert (report_of(harness).total_failed, report_of(harness, "toys").total_failed) == (0, 3)


@pytest.mark.parametrize(("hours", "count"), [(90 * 24, 3), (90 * 24 + 1, 0)])
def test_dead_letters_are_kept_for_ninety_days(
    harness: PricingHarness, hours: float, count: int
) -> None:
    run_with_failures(harness, KINDS, hours=hours)
    assert report_of(harness).total_failed == count


def test_a_run_that_is_rolled_back_has_no_dead_letters_in_the_report(
    harness: PricingHarness,
) -> None:
    run = run_with_failures(harness, KINDS)
    roll_back_run(run.id, database=harness.database, clock=harness.clock, actor="user:1")
    assert harness.work(run).status == "ROLLED_BACK"
    assert report_of(harness).total_failed == 0


def test_a_retry_reports_the_dead_letters_as_an_event(harness: PricingHarness) -> None:
    run_with_failures(harness, KINDS)
    retry_dead_letters("default", database=harness.database, clock=harness.clock, actor="user:9")
    [event] = harness.events("automation.dlq.report")
    assert (event.payload["totalFailed"], event.payload["byErrorType"]) == (
        3,
        {"not_found": 2, "server": 1},
    )
    assert "entries" not in event.payload


def test_dead_letters_are_listed_in_order_of_failure(harness: PricingHarness) -> None:
    run = run_with_failures(harness, KINDS)
    first, second, _ = failed_target_ids(harness, run)
    with harness.database.reading() as session:
        oldest = dead_letters(session, "default", now=harness.clock.now(), limit=2)
    assert [int(one.target_id) for one in oldest] == [first, second]


def test_acknowledged_dead_letters_are_not_counted(harness: PricingHarness) -> None:
    run = run_with_failures(harness, KINDS)
    chosen = failed_target_ids(harness, run)[1:]
    services = {"database": harness.database, "clock": harness.clock, "actor": "user:9"}
    assert acknowledge_dead_letters("default", chosen, **services) == 2
    assert report_of(harness).total_failed == 1


def retry(harness: PricingHarness, *, force: bool = False) -> RetriedRuns:
    return retry_dead_letters(
        "default", database=harness.database, clock=harness.clock, actor="user:9", force=force
    )


def marked_targets(harness: PricingHarness, run_id: int) -> set[str | None]:
    return {target.variant_id for target in harness.targets(run_id) if target.is_wished}


def test_retryable_targets_are_retried_and_the_report_is_an_event(harness: PricingHarness) -> None:
    run = run_with_failures(harness, {"101": "server", "201": "not_found"})
    retried = retry(harness)
    assert (retried.runs, retried.skipped) == ((run.id,), {})
    assert (marked_targets(harness, run.id), harness.run(run.id).wish) == ({"101"}, "retry")
    [event] = harness.events("automation.dlq.report")
    assert event.payload["totalFailed"] == 2
    harness.shop.accept("101")
    assert harness.work(run).targets.applied == 3


def test_a_forced_retry_includes_permanent_failures(harness: PricingHarness) -> None:
    run = run_with_failures(harness, {"101": "server", "201": "not_found"})
    assert list(retry(harness, force=True).runs) == [run.id]
    assert marked_targets(harness, run.id) == {"101", "201"}


def test_acknowledged_dead_letters_are_not_retried(harness: PricingHarness) -> None:
    run = run_with_failures(harness, {"101": "server", "201": "server"})
    chosen = failed_target_ids(harness, run)[:1]
    acknowledge_dead_letters(
        "default", chosen, database=harness.database, clock=harness.clock, actor="user:9"
    )
    retry(harness)
    assert marked_targets(harness, run.id) == {"201"}


def test_a_run_that_cannot_be_retried_is_skipped(harness: PricingHarness) -> None:
    busy = run_with_failures(harness, {"101": "server"})
    roll_back_run(busy.id, database=harness.database, clock=harness.clock, actor="user:1")
    harness.shop.accept("101")
    free = run_with_failures(
        harness,
        {"201": "server"},
        name="Other",
        onDrift="overwrite",
        transform={"op": "set", "value": 500},
    )
    retried = retry(harness)
    assert list(retried.runs) == [free.id]
    assert list(retried.skipped) == [busy.id]
    assert "already waits for a worker: rollback" in retried.skipped[busy.id]


def test_without_dead_letters_no_run_is_retried(harness: PricingHarness) -> None:
    assert list(retry(harness).runs) == []


TWO_KINDS = {"101": "server", "201": "not_found"}


@pytest.fixture
def three_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


def acknowledge(
    harness: PricingHarness, target_ids: list[int] | None, project_id: str = "default"
) -> int:
    return acknowledge_dead_letters(
        project_id,
        target_ids,
        database=harness.database,
        clock=harness.clock,
        actor="user:9",
    )


def test_all_dead_letters_of_a_project_are_acknowledged_once(
    three_product_harness: PricingHarness,
) -> None:
    run = run_with_failures(three_product_harness, TWO_KINDS)
    assert (
        acknowledge(three_product_harness, None, "toys"),
        acknowledge(three_product_harness, None),
        acknowledge(three_product_harness, None),
    ) == (0, 2, 0)
    dead = [target for target in three_product_harness.targets(run.id) if target.status == "FAILED"]
    assert {(one.acknowledged_at, one.acknowledged_by) for one in dead} == {
        (three_product_harness.clock.now(), "user:9")
    }


def test_acknowledging_a_target_that_is_not_a_dead_letter_changes_nothing(
    three_product_harness: PricingHarness,
) -> None:
    run = run_with_failures(three_product_harness, TWO_KINDS)
    dead = failed_target_ids(three_product_harness, run)
    applied = next(
        target.id for target in three_product_harness.targets(run.id) if target.status == "APPLIED"
    )
    with pytest.raises(InvalidInputError) as refused:
        acknowledge(three_product_harness, [dead[0], applied])
    assert refused.value.fields == (
        ("targetIds", f"{applied} is not a dead letter of project default"),
    )
    assert (
        acknowledge(three_product_harness, dead),
        acknowledge(three_product_harness, dead),
    ) == (2, 0)
