"""Who waits for the steps of a run: it beats, ends when its run has ended elsewhere, and finds what the broker lost."""

from collections.abc import Iterator
from types import SimpleNamespace

import dagster as dg
import pytest
from celery import Celery
from dagster import DagsterRunStatus

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration import overseer as overseeing
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.overseer import Overseer
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.step_beats import RUN_WORKER, beats, begin_step

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
PATIENCE = 120.0


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def services(database: Database, database_url: str) -> Services:
    our = Services(Settings(database_url=database_url, automation_lost_after_seconds=PATIENCE))
    vars(our)["database"] = database
    return our


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    sent: list[bool] = []
    monkeypatch.setattr(overseeing, "send_interrupt", lambda: sent.append(True))
    return sent


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(overseeing, "time", time)
    return time


class Queue:
    """A broker with so many messages in its queue."""

    def __init__(self) -> None:
        self.waiting = 0
        self.conf = SimpleNamespace(task_default_queue="dagster")
        self.backend = SimpleNamespace(connection_errors=())
        self.default_channel = self

    def connection_for_read(self) -> "Queue":
        return self

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_error: object) -> None:
        return

    def queue_declare(self, queue: str) -> SimpleNamespace:
        return SimpleNamespace(message_count=self.waiting)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def overseer(
    instance: dg.DagsterInstance, services: Services, queue: Queue, time: Time, monkeypatch: pytest.MonkeyPatch
) -> Overseer:
    instance.add_run(dg.DagsterRun("automation_run", run_id="d-1", status=DagsterRunStatus.STARTED))
    monkeypatch.setattr(overseeing, "submit_task", lambda *_what: SimpleNamespace(ready=lambda: False))
    return Overseer("d-1", instance, services, queue)  # type: ignore[arg-type]


def send(overseer: Overseer, queue: Queue, step_key: str) -> None:
    app: Celery = queue  # type: ignore[assignment]
    overseer.send(app, None, SimpleNamespace(key=step_key))


def beating(services: Services) -> list[tuple[str, str]]:
    with services.database.reading() as session:
        return [(beat.step_key, beat.worker) for beat in beats(session)]


def test_it_beats_for_the_run_until_it_leaves(overseer: Overseer, services: Services) -> None:
    overseer.look()
    assert beating(services) == [(RUN_WORKER, worker_name())]
    overseer.leave()
    assert beating(services) == []


@pytest.mark.parametrize("ended", ["report_run_failed", "report_run_canceled"])
def test_a_run_that_has_ended_elsewhere_is_not_waited_for(
    ended: str, overseer: Overseer, instance: dg.DagsterInstance, interrupts: list[bool]
) -> None:
    overseer.look()
    assert (overseer.is_over, interrupts) == (False, [])
    run = instance.get_run_by_id("d-1")
    assert run
    getattr(instance, ended)(run)
    overseer.look()
    overseer.look()
    assert (overseer.is_over, interrupts) == (True, [True])


def test_a_step_that_is_nowhere_for_long_is_lost_once(overseer: Overseer, queue: Queue, time: Time) -> None:
    send(overseer, queue, "work[1]")
    overseer.look()
    time.now += PATIENCE / 4 - 1
    overseer.look()
    assert not overseer.is_lost("work[1]")
    time.now += 1
    assert overseer.is_lost("work[1]")
    assert not overseer.is_lost("work[1]")


def test_a_step_at_work_or_in_the_queue_is_not_lost(
    overseer: Overseer, queue: Queue, time: Time, services: Services
) -> None:
    send(overseer, queue, "work[1]")
    queue.waiting = 1
    overseer.look()
    time.now += PATIENCE
    assert not overseer.is_lost("work[1]")
    queue.waiting = 0
    with services.database.transaction() as session:
        begin_step(session, "d-1", "work[1]", "host:1")
    overseer.look()
    time.now += PATIENCE
    overseer.look()
    assert not overseer.is_lost("work[1]")


def test_a_step_that_comes_up_in_between_is_waited_for_anew(overseer: Overseer, queue: Queue, time: Time) -> None:
    send(overseer, queue, "work[1]")
    overseer.look()
    time.now += PATIENCE
    queue.waiting = 1
    overseer.look()
    queue.waiting = 0
    overseer.look()
    assert not overseer.is_lost("work[1]")
