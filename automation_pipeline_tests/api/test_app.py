"""Behaviour of every request: request ids, error format, body and time limits, unexpected exceptions."""

import asyncio
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy.pool import QueuePool

from automation_pipeline.api import app as application
from automation_pipeline.api.app import create_app
from automation_pipeline.api.errors import BUG
from automation_pipeline.automation.routes import schedules
from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.database import ServerLimits
from automation_pipeline_tests.api.conftest import MACHINE, services_on
from automation_pipeline_tests.cases import every_case

LIST = "/api/automation/schedules"


def test_a_response_repeats_the_request_id(client: TestClient) -> None:
    assert client.get(LIST, headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    refused = client.get(f"{LIST}/9", headers={"X-Request-Id": "abc-2"})
    assert refused.json()["requestId"] == refused.headers["x-request-id"] == "abc-2"


@pytest.mark.parametrize("given", ["", "with space", "x" * 129, "é"])
def test_an_invalid_request_id_is_replaced(client: TestClient, given: str) -> None:
    created = client.get(LIST, headers={"X-Request-Id": given.encode()}).headers["x-request-id"]
    assert len(created) == 32


def test_an_unknown_route_is_404_and_a_wrong_method_405(client: TestClient) -> None:
    unknown = client.get("/api/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NOT_FOUND")
    wrong = client.put(LIST)
    assert (wrong.status_code, wrong.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"]


def test_an_oversized_body_is_refused(services: Services) -> None:
    services.settings.__dict__["api_max_body_megabytes"] = 1
    with TestClient(create_app(services), headers={"X-API-Key": MACHINE}) as client:
        result = client.post(LIST, content=b"x" * 1_000_001)
        streamed = client.post(LIST, content=(b"x" * 500_000 for _ in range(3)))
    for answered in (result, streamed):
        assert (answered.status_code, answered.json()["code"]) == (413, "BODY_TOO_LARGE")


def test_a_request_over_the_time_limit_is_504(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.settings.__dict__["api_timeout_seconds"] = 0.2
    monkeypatch.setattr(schedules, "schedules_within", lambda *_a, **_k: Event().wait(1) or [])
    with TestClient(create_app(services), headers={"X-API-Key": MACHINE}) as client:
        answered = client.get(LIST)
    assert (answered.status_code, answered.json()["code"]) == (504, "TIMEOUT")


def test_an_unexpected_exception_is_a_500_without_details(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "schedules_within", lambda *_a, **_k: 1 / 0)
    answered = client.get(LIST)
    assert (answered.status_code, answered.json()["error"]) == (500, BUG)
    assert "ZeroDivision" not in answered.text
    assert answered.json()["requestId"] == answered.headers["x-request-id"]


def test_a_database_without_tables_is_503_and_names_the_upgrade(
    services: Services, api: FastAPI
) -> None:
    with services.database.transaction() as session:
        session.connection().exec_driver_sql("ALTER TABLE automation_schedules RENAME TO elsewhere")
    with TestClient(api, headers={"X-API-Key": MACHINE}) as client:
        answered = client.get(LIST)
    assert (answered.status_code, answered.json()["code"]) == (503, "DATABASE_ERROR")
    assert "automation db upgrade" in answered.json()["error"]


def test_health_responds_when_all_threads_are_busy(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, free = Event(), Event()

    def waits(*_a: object, **_k: object) -> list[object]:
        started.set()
        free.wait(60)
        return []

    monkeypatch.setattr(application, "THREADS", 1)
    monkeypatch.setattr(schedules, "schedules_within", waits)
    with (
        TestClient(create_app(services), headers={"X-API-Key": MACHINE}) as client,
        ThreadPoolExecutor() as background,
    ):
        listed = background.submit(client.get, LIST)
        assert started.wait(60)
        assert (client.get("/health").status_code, listed.done()) == (200, False)
        free.set()
        assert listed.result(60).status_code == 200


@every_case(
    ("url", "sentence"),
    [
        ("postgresql://anna:s3cret@127.0.0.1:9/work", "The database does not answer"),
        (
            "sqlite:////anna/127.0.0.1/work.db",
            "The database is not ready: run `automation db upgrade`",
        ),
    ],
)
def test_database_errors_do_not_reveal_its_location(url: str, sentence: str) -> None:
    services = services_on(url)
    with TestClient(create_app(services)) as client:
        refused = client.get(LIST, headers={"Authorization": f"Bearer apt_{'a' * 43}"})
        ready = client.get("/health/ready")
    assert (refused.status_code, refused.json()["code"]) == (503, "DATABASE_ERROR")
    assert refused.json()["error"] == ready.json()["checks"][0]["detail"] == sentence
    assert not [word for word in ("anna", "127.0.0.1", "work") if word in refused.text + ready.text]


@every_case(
    "address",
    [
        "/api/requests/transcriptions?key=%00",
        "/api/requests/audits?key=a&key=b%00c",
        "/api/fiches/jobs/%00",
        "/api/transcriptions/900/recordings/%00",
        "/api/audits?q=%00",
        "/api/%00",
    ],
)
def test_nul_characters_in_urls_are_refused(client: TestClient, address: str) -> None:
    answered = client.get(address)
    assert (answered.status_code, answered.json()["code"]) == (400, "VALIDATION_ERROR")
    assert answered.json()["details"] == [
        {"field": "address", "message": "must not hold the character NUL"}
    ]


def test_all_references_in_the_openapi_document_resolve(api: FastAPI) -> None:
    document = api.openapi()
    assert document["openapi"].startswith("3.1")
    parts = set(document["components"]["schemas"])
    wanted = {ref.removeprefix("#/components/schemas/") for ref in _refs(document)}
    assert wanted <= parts
    assert not {"HTTPValidationError", "ValidationError"} & parts


def test_every_operation_id_is_unique(api: FastAPI) -> None:
    named = [
        one["operationId"]
        for methods in api.openapi()["paths"].values()
        for one in methods.values()
    ]
    assert "schedules_create" in named
    assert len(set(named)) == len(named)
    assert all(name.isidentifier() for name in named)


def _refs(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(_refs(value) for value in node.values()))
    return set().union(*(_refs(value) for value in node)) if isinstance(node, list) else set()


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_connection_pool_has_one_connection_per_thread(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application._Server, "run", lambda *_a, **_k: None)
    application.serve(services, host="127.0.0.1", port=0)
    pool = services.database.engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.size() == application.THREADS


def test_serve_configures_and_runs_the_server(
    services: Services, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits: list[ServerLimits] = []
    configs: list[uvicorn.Config] = []

    class FakeServer(application._Server):
        def run(self, sockets: list[socket.socket] | None = None) -> None:
            configs.append(self.config)
            asyncio.run(self.started_on(sockets or []))

        async def started_on(self, sockets: list[socket.socket]) -> None:
            self.config.load()
            self.lifespan = self.config.lifespan_class(self.config)
            await self.startup(sockets)
            await self.shutdown(sockets)

    monkeypatch.setattr(application, "_Server", FakeServer)
    monkeypatch.setattr(services.database, "serve", limits.append)
    services.settings.__dict__.update(api_timeout_seconds=7.0, api_shutdown_seconds=3)
    for host, shown in (("127.0.0.1", r"127\.0\.0\.1"), ("::1", r"\[::1\]")):
        application.serve(services, host=host, port=0)
        line = capsys.readouterr().out
        assert re.fullmatch(rf"api listening on http://{shown}:[1-9][0-9]*\n", line)
    assert limits == [ServerLimits(application.THREADS, 7.0)] * 2
    config = configs[0]
    assert config.http is application.BoundedProtocol
    assert (config.log_config, config.access_log, config.server_header) == (None, False, False)
    assert (config.timeout_graceful_shutdown, config.backlog) == (3, application.BACKLOG)


def test_the_server_stops_streams_and_restores_signal_handlers(services: Services) -> None:
    api = create_app(services)
    server = application._Server(uvicorn.Config(api), api)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with server.capture_signals():
        handlers = {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        assert handlers == {server.handle_exit}
        signal.raise_signal(signal.SIGTERM)
        assert (server.should_exit, api.state.stopping.is_set()) == (True, True)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    with ThreadPoolExecutor(1) as background:
        background.submit(lambda: server.capture_signals().__enter__()).result(60)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_server_allows_the_configured_origins(services: Services) -> None:
    services.settings.__dict__["api_cors_origins"] = ("https://ui.example.test",)
    with TestClient(create_app(services)) as client:
        allowed = client.get("/health", headers={"Origin": "https://ui.example.test"})
        asked = client.options(
            LIST,
            headers={
                "Origin": "https://ui.example.test",
                "Access-Control-Request-Method": "DELETE",
                "Access-Control-Request-Headers": "Idempotency-Key",
            },
        )
        other = client.get("/health", headers={"Origin": "https://other.example.test"})
    assert allowed.headers["access-control-allow-origin"] == "https://ui.example.test"
    assert allowed.headers["access-control-allow-credentials"] == "true"
    assert allowed.headers["access-control-expose-headers"] == "X-Request-Id, Idempotent-Replay"
    assert (asked.status_code, "DELETE" in asked.headers["access-control-allow-methods"]) == (
        200,
        True,
    )
    assert asked.headers["access-control-allow-headers"] == "Idempotency-Key"
    assert "access-control-allow-origin" not in other.headers


def test_the_server_documents_itself(client: TestClient) -> None:
    assert client.get("/docs").status_code == 200
    assert client.get("/redoc").status_code == 404
    document = client.get("/openapi.json").json()
    assert document["info"]["title"] == "Automation Pipeline"
