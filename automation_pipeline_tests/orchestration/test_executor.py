"""The settings select the executor; a missing dependency is reported in one sentence."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from automation_pipeline import bootstrap
from automation_pipeline.automation.ports import PublishResult
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.events import Event
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.executor import (
    SupervisedExecutor,
    deliver_notifications,
    executor_of,
    processes_of,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import RUN_WORKER, step_heartbeats
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.fakes.senders import FakePublisher
from automation_pipeline_tests.storage.processes import event
from automation_pipeline_tests.waiting import wait_until


def test_the_celery_executor_uses_the_configured_number_of_processes() -> None:
    settings = Settings(
        automation_executor="celery", redis_url="redis://a/1", automation_max_processes=6
    )
    assert (executor_of(settings).name, processes_of(settings)) == ("celery", 6)


@pytest.mark.parametrize(
    ("executor", "sentence"),
    [
        ("celery", "AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL"),
        (
            "k8s",
            "AUTOMATION_EXECUTOR=k8s needs the package dagster-k8s: install this one with its extra `kubernetes`.",
        ),
    ],
)
def test_a_missing_executor_dependency_is_named(
    executor: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_k8s", None)
    with pytest.raises(PermanentError, match=sentence):
        executor_of(Settings(automation_executor=executor))  # type: ignore[arg-type]


def test_celery_is_not_imported_unless_it_is_used() -> None:
    heavy = "{'celery', 'kombu'}"
    script = f"import sys; from automation_pipeline.definitions import defs; defs(); print({heavy} & set(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip().splitlines()[-1] == "set()"


class FakeEngine:
    """An executor whose only step waits for the run's first heartbeat and stores an event."""

    retries, step_dependency_config, app_args = "retries", "dependencies", "celery only"

    def __init__(self, database: Database) -> None:
        self.database = database
        self.heartbeats: list[tuple[str, str]] = []

    def execute(self, _plan_context: object, _execution_plan: object) -> Iterator[str]:
        wait_until(lambda: bool(heartbeats(self.database)))
        self.heartbeats = heartbeats(self.database)
        store(self.database, "new")
        yield "step succeeded"


def heartbeats(database: Database) -> list[tuple[str, str]]:
    with database.reading() as session:
        return [(beat.dagster_run_id, beat.step_key) for beat in step_heartbeats(session)]


def store(database: Database, key: str) -> None:
    with database.transaction() as session:
        enqueue(session, [event(key, key)])


@pytest.fixture
def services(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Services:
    built = Services(Settings(database_url=database_url))
    vars(built).update(database=database, publisher=FakePublisher())
    monkeypatch.setattr(bootstrap, "services", lambda: built)
    return built


def execute(engine: Any, origin: object) -> list[object]:
    run = SimpleNamespace(remote_job_origin=origin)
    plan_context: Any = SimpleNamespace(dagster_run=run, run_id="d-1")
    return list(SupervisedExecutor(engine).execute(plan_context, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("origin", "published"), [(None, ["new"]), (object(), [])])
def test_a_run_sends_heartbeats_and_delivers_its_events_itself_without_a_daemon(
    services: Services, database: Database, origin: object, published: list[str]
) -> None:
    store(database, "earlier")
    engine = FakeEngine(database)
    assert execute(engine, origin) == ["step succeeded"]
    assert (engine.heartbeats, heartbeats(database)) == ([("d-1", RUN_WORKER)], [])
    assert services.publisher.published == published  # type: ignore[union-attr]


def test_a_run_without_a_reachable_database_reports_only_the_error_of_its_steps(
    services: Services, tmp_path: Any
) -> None:
    vars(services)["database"] = Database(f"sqlite:///{tmp_path / 'missing.db'}")
    engine = SimpleNamespace(execute=lambda *_: iter(["step failed"]))
    assert execute(engine, None) == ["step failed"]


def test_the_supervised_executor_has_the_attributes_of_its_engine(database: Database) -> None:
    executor: Any = SupervisedExecutor(FakeEngine(database))  # type: ignore[arg-type]
    assert (executor.retries, executor.step_dependency_config, executor.app_args) == (
        "retries",
        "dependencies",
        "celery only",
    )


class HangingPublisher(FakePublisher):
    async def publish(self, events: Sequence[Event]) -> PublishResult:
        await asyncio.sleep(3600)
        return await super().publish(events)


@pytest.mark.parametrize(
    ("publisher", "message"),
    [
        (HangingPublisher(), "Some notifications were not delivered within 0 s"),
        (None, "Notifications wait for the relay: 'NoneType'"),
    ],
)
def test_a_failed_delivery_does_not_fail_the_run(
    services: Services,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    publisher: FakePublisher | None,
    message: str,
) -> None:
    vars(services)["publisher"] = publisher
    with database.reading() as session:
        since = database_time(session)
    store(database, "new")
    if publisher is None:
        vars(services)["database"] = None
    deliver_notifications(services, since, 0.2)
    assert message in caplog.text
