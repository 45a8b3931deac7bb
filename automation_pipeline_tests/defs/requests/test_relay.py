"""The sensor `relay_outbox`: a tick sends waiting webhooks and events."""

import dagster as dg
from sqlalchemy import select

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import EVERYTHING
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.core.settings import Settings
from automation_pipeline.core.webhooks import mac_of
from automation_pipeline.defs.housekeeping import relay_outbox
from automation_pipeline.fiches.fetch_jobs import RangeRequest, request_range
from automation_pipeline.fiches.models.fetch_jobs import JobWebhook
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import DAEMON, seconds_since_heartbeat
from automation_pipeline.storage.outbox import OutboxRow, enqueue
from automation_pipeline_tests.automation.post import make_ended_run, records
from automation_pipeline_tests.clients.receiver import receiver
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.ranges import DAYS, FetchJobHarness
from automation_pipeline_tests.storage.processes import event


def tick(services: Services) -> str | None:
    """The message of one tick."""

    class FixedServices(ServicesResource):
        def get(self) -> Services:
            return services

    with dg.build_sensor_context(resources={"services": FixedServices()}) as context:
        result = relay_outbox(context)
        assert isinstance(result, dg.SkipReason)
        return result.skip_message


def published(database: Database) -> set[str]:
    with database.reading() as session:
        return set(
            session.scalars(select(OutboxRow.event_key).where(OutboxRow.published_at.is_not(None)))
        )


def test_a_tick_sends_waiting_webhooks_and_events(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    with receiver() as hook:
        make_ended_run(database, clock, webhookUrl=f"{hook.url}/run")
        settings = Settings(database_url=database_url, webhook_allowed_origins=(hook.url,))
        services = Services(settings, clock)
        result = tick(services)
        assert result is not None
        assert result.endswith("tried 1 messages.")
        assert ([call.path for call in hook.calls], records(database)[0].status) == (
            ["/run"],
            "sent",
        )
    with database.transaction() as session:
        enqueue(session, [event("later")])
    tick(services)
    assert "later" in published(database)
    services.database.dispose()


def test_a_tick_sends_the_webhooks_of_fetch_jobs(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    with receiver() as hook:
        ranges = FetchJobHarness(database, clock)
        job = request_range(
            RangeRequest(
                start=DAYS[0],
                end=DAYS[0],
                reach=EVERYTHING,
                webhook=JobWebhook(f"{hook.url}/days", "s3cret"),
            ),
            database=database,
            clock=clock,
            zone=zone("Europe/Paris"),
            allowed_origins=(hook.url,),
        ).job
        assert job
        ranges.work(job)
        services = Services(
            Settings(database_url=database_url, webhook_allowed_origins=(hook.url,)), clock
        )
        result = tick(services)
        services.database.dispose()
        [call] = hook.calls
    assert result is not None
    assert result.endswith("tried 1 messages.")
    headers = {name.lower(): value for name, value in call.headers.items()}
    assert (call.path, headers["user-agent"], headers["x-webhook-event"]) == (
        "/days",
        "automation-pipeline-webhook/1.0",
        "complete",
    )
    assert headers["x-webhook-signature"] == f"sha256={mac_of('s3cret', call.body)}"
    assert [row.status for row in ranges.deliveries] == ["sent"]


def test_every_tick_records_a_daemon_heartbeat(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    services = Services(Settings(database_url=database_url), clock)
    tick(services)
    with database.reading() as session:
        silence = seconds_since_heartbeat(session, DAEMON)
    services.database.dispose()
    assert silence is not None
    assert silence < 600
