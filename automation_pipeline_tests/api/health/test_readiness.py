"""Readiness needs the database and a daemon heartbeat within one minute."""

import os
import socket
from datetime import timedelta
from importlib.metadata import version

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from automation_pipeline.api import health
from automation_pipeline.api.health import NOT_CONFIGURED, REDIS_IS_AWAY, readiness
from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import DAEMON, ProcessHeartbeatRow, record_heartbeat
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.api.health.conftest import MakeServices
from automation_pipeline_tests.cases import every_case


def set_heartbeat(database: Database, seconds_ago: float) -> None:
    with database.transaction() as session:
        record_heartbeat(session, DAEMON)
        session.execute(
            update(ProcessHeartbeatRow).values(
                beat_at=database_time(session) - timedelta(seconds=seconds_ago)
            )
        )


@pytest.mark.parametrize(
    ("seconds_ago", "state", "expected"),
    [
        (0, "ok", " s ago"),
        (30, "ok", " s ago"),
        (70, "failed", "ticked 1 min ago"),
        (600, "failed", "ticked 10 min ago: it starts no work until it runs again"),
        (3 * 3600, "failed", "ticked 3 h ago"),
        (47 * 3600, "failed", "ticked 47 h ago"),
        (3 * 86_400, "failed", "ticked 3 days ago"),
    ],
)
def test_readiness_needs_a_daemon_heartbeat_within_one_minute(
    make_services: MakeServices, database: Database, seconds_ago: float, state: str, expected: str
) -> None:
    set_heartbeat(database, seconds_ago)
    database_finding, redis, daemon = readiness(make_services())
    assert (database_finding.state, redis.state, daemon.state) == ("ok", "not set", state)
    assert expected in daemon.detail
    assert any(one.is_problem for one in (database_finding, redis, daemon)) is (state == "failed")


def test_a_daemon_that_never_ticked_is_not_ready(make_services: MakeServices) -> None:
    assert readiness(make_services())[2].detail.startswith("has never ticked")


def test_an_unreachable_database_is_reported_without_its_address(
    make_services: MakeServices,
) -> None:
    found = readiness(make_services(DATABASE_URL="postgresql://anna:s3cret@127.0.0.1:9/work"))
    assert [one.state for one in found] == ["failed", "not set", "failed"]
    assert {found[0].detail, found[2].detail} == {"The database does not answer"}


def test_an_unreachable_redis_is_reported_without_failing_readiness(
    make_services: MakeServices,
) -> None:
    redis = readiness(make_services(REDIS_URL="redis://:s3cret@127.0.0.1:9/0"))[1]
    assert (redis.state, redis.is_problem, redis.detail) == ("failed", False, REDIS_IS_AWAY)


@every_case(
    ("seconds", "state", "detail"),
    [
        (-3.0, "ok", "ticked 0 s ago"),
        (0.4, "ok", "ticked 0 s ago"),
        (60.0, "ok", "ticked 60 s ago"),
        (60.1, "failed", "ticked 1 min ago: it starts no work until it runs again"),
        (3599.0, "failed", "ticked 60 min ago: it starts no work until it runs again"),
        (3600.0, "failed", "ticked 1 h ago: it starts no work until it runs again"),
        (172_799.0, "failed", "ticked 48 h ago: it starts no work until it runs again"),
        (172_800.0, "failed", "ticked 2 days ago: it starts no work until it runs again"),
        (90.0, "failed", "ticked 2 min ago: it starts no work until it runs again"),
        (5400.0, "failed", "ticked 2 h ago: it starts no work until it runs again"),
        (302_400.0, "failed", "ticked 4 days ago: it starts no work until it runs again"),
        (None, "failed", "has never ticked: `dagster dev` or `dagster-daemon run` starts it"),
    ],
)
def test_the_daemon_check_names_the_time_since_the_last_tick(
    make_services: MakeServices, seconds: float | None, state: str, detail: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "seconds_since_heartbeat", lambda _session, _name: seconds)
        daemon = readiness(make_services())[2]
    assert (daemon.name, daemon.state, daemon.detail, daemon.required) == (
        "daemon",
        state,
        detail,
        True,
    )


def test_readiness_and_liveness_have_exact_documents(
    client: TestClient, services: Services
) -> None:
    ready = client.get("/health/ready")
    daemon = "has never ticked: `dagster dev` or `dagster-daemon run` starts it"
    database = f"{services.database.dialect} answers"
    assert (ready.status_code, ready.json()) == (
        503,
        {
            "status": "not ready",
            "checks": [
                {"name": "database", "state": "ok", "detail": database, "required": True},
                {"name": "redis", "state": "not set", "detail": NOT_CONFIGURED, "required": False},
                {"name": "daemon", "state": "failed", "detail": daemon, "required": True},
            ],
        },
    )
    set_heartbeat(services.database, 0)
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    live = client.get("/health").json()
    assert live == {
        "status": "ok",
        "timestamp": "2026-05-04T10:00:00.000Z",
        "service": "automation-pipeline",
        "version": version("automation-pipeline"),
        "instance": f"{socket.gethostname()}:{os.getpid()}",
    }
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=")


def test_the_caller_is_shown_with_its_grants(login: Login, client: TestClient) -> None:
    user = login(
        {"fiches.read": "GROUP", "audits.write": "ALL"},
        groupes=["SUD", "NORD"],
        crm_user="77",
        roles=["operator"],
    )
    assert user.get("/api/auth/me").json() == {
        "success": True,
        "data": {
            "id": "user:12",
            "name": "anna@example.test",
            "roles": ["operator"],
            "groupes": ["NORD", "SUD"],
            "crm_user_id": "77",
            "permissions": {
                "fiches": {"read": "GROUP", "write": None},
                "audits": {"read": None, "write": "ALL"},
            },
        },
    }
    machine = client.get("/api/auth/me").json()["data"]
    assert (machine["id"], machine["name"]) == ("machine:environment", "API_AUTH_TOKENS")
    assert machine["permissions"]["admin.users"] == {"read": "ALL", "write": "ALL"}
