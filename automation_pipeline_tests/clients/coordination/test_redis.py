"""Failures specific to Redis: outages, flushed scripts, lost responses, refused passwords."""

import asyncio
import socket
import socketserver
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from automation_pipeline.clients.redis import RedisPermits, RedisRateLimiter, connect
from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.services import free_port, redis_server
from automation_pipeline_tests.waiting import wait_until

RATE = Rate(1, 0.1)


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


def test_an_unreachable_redis_is_a_transient_error_on_one_line(key: str) -> None:
    client = connect(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(TransientError, match=r"^Redis does not answer: ") as caught:
        RedisRateLimiter(client).reserve(key, RATE)
    assert "\n" not in str(caught.value)
    with pytest.raises(TransientError, match=r"^Redis does not answer: "):
        asyncio.run(RedisPermits(client).acquire(key, 1, "anna", 1.0))


def test_flushed_scripts_are_loaded_again(redis_url: str, key: str) -> None:
    client = connect(redis_url)
    limiter = RedisRateLimiter(client)
    limiter.reserve(key, RATE)
    client.script_flush()
    assert limiter.reserve(key, RATE) is not None


def test_a_connection_killed_while_idle_is_replaced_transparently(redis_url: str, key: str) -> None:
    client, killer = connect(redis_url), connect(redis_url)
    limiter = RedisRateLimiter(client)
    limiter.reserve(key, RATE)
    killer.client_kill_filter(_type="normal", skipme=True)
    assert limiter.reserve(key, RATE) is not None


class _ScriptedHandler(socketserver.BaseRequestHandler):
    """Accepts commands until EVALSHA, then sends the configured answer and closes the connection."""

    def handle(self) -> None:
        assert isinstance(self.server, _ScriptedServer)
        while received := self.request.recv(65_536):
            if b"EVALSHA" in received:
                self.server.scripts += 1
                self.request.sendall(self.server.answer)
                return
            self.request.sendall(b"+OK\r\n" * received.count(b"*"))


class _ScriptedServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    scripts = 0
    answer = b""


@contextmanager
def scripted_redis(answer: bytes = b"") -> Generator[tuple[_ScriptedServer, str]]:
    with _ScriptedServer(("127.0.0.1", 0), _ScriptedHandler) as server:
        server.answer = answer
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()
            thread.join()


def test_a_reservation_is_not_retried_after_its_response_is_lost(key: str) -> None:
    with scripted_redis() as (server, url), connect(url) as client:
        with pytest.raises(TransientError, match=r"^Redis does not answer: "):
            RedisRateLimiter(client).reserve(key, RATE)
        assert server.scripts == 1


def test_a_redis_that_never_responds_times_out(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automation_pipeline.clients.redis.ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        with pytest.raises(TransientError, match=r"^Redis does not answer: "):
            RedisRateLimiter(client).reserve(key, RATE)


@pytest.mark.parametrize(
    ("answer", "verdict", "sentence"),
    [
        (
            b"-LOADING Redis is loading the dataset in memory\r\n",
            TransientError,
            "Redis cannot serve us now: ",
        ),
        (
            b"-READONLY You can't write against a read only replica.\r\n",
            TransientError,
            "Redis cannot serve us now: ",
        ),
        (b"-OOM command not allowed\r\n", TransientError, "Redis cannot serve us now: "),
        (
            b"-MISCONF Redis is configured to save snapshots\r\n",
            TransientError,
            "Redis cannot serve us now: MISCONF ",
        ),
        (
            b"-BUSY Redis is busy running a script.\r\n",
            TransientError,
            "Redis cannot serve us now: ",
        ),
        (
            b"-ERR Error running script: -READONLY no\r\n",
            TransientError,
            "Redis cannot serve us now: READONLY no.$",
        ),
        # A proxy that speaks another protocol, and a stream that is out of step.
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            TransientError,
            "Redis does not answer: Protocol Error",
        ),
        (b":abc\r\n", TransientError, "Redis does not answer: "),
        (b"$2\r\n\xff\xfe\r\n", TransientError, "Redis does not answer: "),
        (b"-ERR unknown command 'EVALSHA'\r\n", PermanentError, "Redis refuses us: "),
        (b"-WRONGTYPE Operation against a key\r\n", PermanentError, "Redis refuses us: "),
        (b"-NOAUTH Authentication required.\r\n", PermanentError, "Redis refuses us: "),
        (b"-NOPERM this user has no permissions\r\n", PermanentError, "Redis refuses us: "),
    ],
)
def test_redis_errors_are_classified_as_transient_or_permanent(
    answer: bytes, verdict: type[Exception], sentence: str, key: str
) -> None:
    with (
        scripted_redis(answer) as (_, url),
        connect(url) as client,
        pytest.raises(verdict, match=f"^{sentence}"),
    ):
        RedisRateLimiter(client).reserve(key, RATE)


@pytest.fixture
def private_redis(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Redis server of this test, so that the test can change its settings."""
    monkeypatch.delenv("TEST_REDIS_URL", raising=False)
    with redis_server() as url:
        yield url


def test_a_redis_out_of_memory_is_a_transient_error(private_redis: str, key: str) -> None:
    client = connect(private_redis)
    client.config_set("maxmemory", 1)
    with pytest.raises(
        TransientError, match=r"^Redis cannot serve us now: OOM command not allowed [^\n]+[^.]\.$"
    ):
        RedisRateLimiter(client).reserve(key, RATE)
    client.config_set("maxmemory", 0)
    assert RedisRateLimiter(client).reserve(key, RATE) is not None


def test_an_unknown_redis_database_is_a_permanent_error(redis_url: str, key: str) -> None:
    limiter = RedisRateLimiter(connect(redis_url.removesuffix("/0") + "/99"))
    with pytest.raises(
        PermanentError, match=r"^REDIS_URL names a database that this Redis does not have: "
    ):
        limiter.reserve(key, RATE)


@every_case("url", ["nonsense", "http://127.0.0.1", "redis://127.0.0.1:port/0"])
def test_an_invalid_redis_url_is_a_permanent_error(url: str) -> None:
    with pytest.raises(PermanentError, match=r"^REDIS_URL "):
        connect(url)


def test_keys_of_an_idle_rate_limit_expire(redis_url: str, key: str) -> None:
    client = connect(redis_url)
    limiter = RedisRateLimiter(client)
    for _ in range(3):
        limiter.reserve(f"{key}:slow", Rate(1, 100))
        limiter.reserve(f"{key}:fast", RATE)
    [name] = client.scan_iter(match=f"*{key}:slow*")
    assert 200_000 < client.pttl(name) <= 300_001
    wait_until(lambda: not list(client.scan_iter(match=f"*{key}:fast*")))


def test_released_permits_leave_no_keys_and_a_late_extension_restores_none(
    redis_url: str, key: str
) -> None:
    client = connect(redis_url)
    permits = RedisPermits(client)

    async def use() -> None:
        permit = await permits.acquire(key, 1, "anna", 30.0)
        assert permit is not None
        await permit.extend(30.0)
        assert await permits.acquire(key, 1, "berta", 30.0) is None
        await permit.release()
        await permit.extend(30.0)

    asyncio.run(use())
    assert list(client.scan_iter(match=f"*{key}*")) == []
