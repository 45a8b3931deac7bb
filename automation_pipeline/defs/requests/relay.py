"""Sensor `relay_outbox`: events and messages leave by here, after commit. Bounded in time; two
share the work."""

import asyncio

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Delivers what waits in the outbox: realtime events, webhooks and e-mails.",
)
def relay_outbox(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.automation.relay import relay_events
    from automation_pipeline.storage.heartbeats import DAEMON, heartbeat_of

    our = services.get()
    beat = heartbeat_of(our.database, DAEMON)
    beat()
    # A loop of its own: sensors run in threads of one process, where the services' loop may be at
    # work.
    relayed = asyncio.run(
        our.counted(relay_events(our.post_office, database=our.database, beat=beat))
    )
    return dg.SkipReason(f"Relayed {relayed.events} events; tried {relayed.messages} messages.")
