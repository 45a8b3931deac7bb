"""The Pusher adapter configured for the simulated Pusher, with short timeouts."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from automation_pipeline.clients.pusher import PusherApp, PusherChannels
from automation_pipeline.core.metrics import Meter
from automation_pipeline_tests.simulator_control import PUSHER_APP_ID, PUSHER_KEY, PUSHER_SECRET


def channels(
    url: str, *, secret: str = PUSHER_SECRET, app_id: str = PUSHER_APP_ID, **how: Any
) -> PusherChannels:
    parts = urlsplit(url)
    app = PusherApp(
        app_id=app_id,
        key=PUSHER_KEY,
        secret=secret,
        cluster="eu",
        host=parts.hostname,
        port=parts.port,
        encrypted=False,
        seconds=how.pop("seconds", 5.0),
        meter=how.pop("meter", None) or Meter(),
    )
    return PusherChannels(app, now=lambda: datetime.now(UTC), **how)
