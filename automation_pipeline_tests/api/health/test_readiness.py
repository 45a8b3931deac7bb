"""Readiness needs the database and a daemon heartbeat within one minute."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.api.health import REDIS_IS_AWAY, readiness
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import DAEMON, ProcessHeartbeatRow, record_heartbeat
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.api.health.conftest import MakeServices


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
