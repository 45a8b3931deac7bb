"""The `pusher` library over its own HTTP session: it signs, and we see the answer's status, and no redirect."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, cast

from pusher import Pusher  # pyright: ignore[reportMissingTypeStubs]  it has none: `Library` says what we use
from pusher.requests import RequestsBackend  # pyright: ignore[reportMissingTypeStubs]  the same

from automation_pipeline.core.meter import Meter

MOST_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class PusherApp:
    """The account. `host` and `port` replace those of the cluster; `seconds` is for each wait on the network, and each
    call is counted in `meter`."""

    app_id: str
    key: str
    secret: str = field(repr=False)
    cluster: str
    host: str | None = None
    port: int | None = None
    encrypted: bool = True
    seconds: float = 5.0
    meter: Meter = field(default_factory=Meter, repr=False)


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    retry_after: str | None


class Library(Protocol):
    """Of `pusher.Pusher`, with our session behind it: calls return an Answer; a network failure is an OSError."""

    def trigger_batch(self, batch: Sequence[Mapping[str, str]], already_encoded: bool) -> Answer: ...
    def channels_info(self) -> Answer: ...
    def authenticate(self, channel: str, socket_id: str, custom_data: object) -> Mapping[str, str]: ...


def open_library(app: PusherApp) -> Library:
    """ValueError: the application's id is not a number."""
    open_as = cast("Callable[..., Library]", Pusher)  # it declares the default of `timeout` as its type
    return open_as(
        app.app_id,
        app.key,
        app.secret,
        ssl=app.encrypted,
        host=app.host,
        port=app.port,
        timeout=app.seconds,
        cluster=app.cluster,
        backend=_Session,
        allow_redirects=False,
        stream=True,
    )


class _Request(Protocol):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class _Response(Protocol):
    status_code: int
    headers: Mapping[str, str]

    def iter_content(self, chunk_size: int) -> Iterator[bytes]: ...


class _Session(RequestsBackend):
    """The library's own would make an exception of any status but 200, with the status in its text."""

    def send_request(self, request: _Request) -> Answer:
        seconds = cast("float", self.client.timeout)
        send = cast("Callable[..., AbstractContextManager[_Response]]", self.session.request)
        options = cast("dict[str, object]", self.options)
        with send(
            request.method, request.url, headers=request.headers, data=request.body, timeout=seconds, **options
        ) as response:
            return Answer(response.status_code, _beginning(response), response.headers.get("Retry-After"))


def _beginning(response: _Response) -> str:
    """Read to its end, the connection can be used again."""
    text = b""
    for piece in response.iter_content(4096):
        text += piece
        if len(text) > MOST_BYTES:
            break
    return text.decode(errors="replace")
