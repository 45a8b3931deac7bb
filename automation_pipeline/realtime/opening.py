"""From settings to the adapter; the library behind it is only loaded where it is configured."""

from collections.abc import Callable, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from automation_pipeline.automation.ports import EventPublisher, Published, Realtime
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.settings import Settings


def open_realtime(settings: Settings, now: Callable[[], datetime], meter: Meter) -> Realtime | None:
    """None where none of Pusher's four settings is there. PermanentError names those that are missing of them."""
    secret = settings.pusher_secret
    app_id, key, cluster = settings.pusher_app_id, settings.pusher_key, settings.pusher_cluster
    if not (app_id or key or secret or cluster):
        return None
    if not (app_id and key and secret and cluster):
        four = {"PUSHER_APP_ID": app_id, "PUSHER_KEY": key, "PUSHER_SECRET": secret, "PUSHER_CLUSTER": cluster}
        missing = ", ".join(name for name, value in four.items() if not value)
        raise PermanentError(f"Realtime events need all four settings of Pusher: {missing} not set")
    from automation_pipeline.realtime.pusher_channels import PusherChannels  # noqa: PLC0415  only where it is used
    from automation_pipeline.realtime.wire import PusherApp  # noqa: PLC0415  the same

    host, port, encrypted = _elsewhere(settings.pusher_base_url)
    return PusherChannels(
        PusherApp(
            app_id=app_id,
            key=key,
            secret=secret.get_secret_value(),
            cluster=cluster,
            host=host,
            port=port,
            encrypted=encrypted,
            meter=meter,
        ),
        now=now,
        private=settings.pusher_use_private_channels,
        most_bytes=settings.pusher_max_payload_bytes,
        dry_run=settings.pusher_dry_run,
    )


def open_publisher(open_it: Callable[[], Realtime | None]) -> EventPublisher | None:
    """With half of the settings events wait until they are whole; messages about runs are none of their business."""
    try:
        return open_it()
    except PermanentError as error:
        return _Waiting(str(error))


class _Waiting:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def publish(self, events: Sequence[Event]) -> Published:
        return Published(0, TransientError(self._reason)) if events else Published(0)


def _elsewhere(base_url: str | None) -> tuple[str | None, int | None, bool]:
    if base_url is None:
        return None, None, True
    parts = urlsplit(base_url)
    if parts.path.strip("/"):
        raise PermanentError("PUSHER_BASE_URL must be an address without a path")
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host, parts.port, parts.scheme == "https"
