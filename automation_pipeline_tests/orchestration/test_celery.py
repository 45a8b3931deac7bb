"""Steps on Celery workers, without Redis: the decisions of the run process and of a worker. `e2e/`
runs real workers."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import celery
import dagster as dg
import pytest
from celery.exceptions import TaskRevokedError
from dagster import DagsterRun, DagsterRunStatus
from dagster._core.errors import DagsterExecutionInterruptedError

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration import celery as module
from automation_pipeline.orchestration.celery import (
    SentStep,
    StepsOnWorkers,
    StepTask,
    StepWatch,
    broker_of,
    celery_settings,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import record_step_heartbeat, step_heartbeats
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.waiting import wait_until

LOST_AFTER_SECONDS = 25.0


class Result:
    """Celery's result of a sent task; `is_ready` may be a broker error."""

    def __init__(self, is_ready: bool | Exception = False, *, has_failed: bool = False) -> None:
        self.is_ready, self.has_failed, self.is_revoked = is_ready, has_failed, False

    def ready(self) -> bool:
        if isinstance(self.is_ready, Exception):
            raise self.is_ready
        return self.is_ready

    def failed(self) -> bool:
        return self.has_failed

    def get(self) -> object:
        return ["event"]

    def revoke(self) -> None:
        self.is_revoked = True
        self.ready()


@pytest.fixture
def services(database: Database, database_url: str) -> Services:
    built = Services(
        Settings(database_url=database_url, automation_lost_after_seconds=LOST_AFTER_SECONDS)
    )
    vars(built)["database"] = database
    return built


@pytest.fixture
def app() -> celery.Celery:
    return celery.Celery(broker="memory://", backend="cache+memory://")


def make_run(instance: dg.DagsterInstance, status: DagsterRunStatus) -> DagsterRun:
    return instance.add_run(DagsterRun("automation_run", run_id="d-1", status=status))


@every_case(
    ("settings", "broker"),
    [
        ({"redis_url": "redis://a/1"}, "redis://a/1"),
        (
            {"redis_url": "redis://a/1", "automation_celery_broker_url": "redis://b/2"},
            "redis://b/2",
        ),
        ({"redis_url": "unix:///run/redis.sock"}, "redis+socket:///run/redis.sock"),
    ],
)
def test_the_broker_url_comes_from_the_settings(settings: dict[str, Any], broker: str) -> None:
    assert broker_of(Settings(**settings)) == broker


def test_celery_acknowledges_early_and_sets_socket_timeouts() -> None:
    chosen = celery_settings(Settings(automation_celery_concurrency=3))
    waits = {"socket_timeout": 30, "socket_connect_timeout": 10, "socket_keepalive": True}
    expected = {
        "task_acks_late": False,
        "worker_disable_prefetch": True,
        "worker_prefetch_multiplier": 1,
        "worker_concurrency": 3,
        "worker_redirect_stdouts": False,
        "broker_transport_options": waits,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "task_publish_retry": False,
        "result_expires": 6 * 3600,
        **{f"redis_{name}": value for name, value in waits.items()},
    }
    assert {name: chosen[name] for name in expected} == expected


def test_sending_is_repeated_during_a_broker_outage() -> None:
    answers: list[Any] = [OSError("unavailable"), OSError("unavailable"), Result()]

    def send() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    waiting = SimpleNamespace(is_over=False)
    step = SentStep(waiting, "fetch", send, (OSError,))  # type: ignore[arg-type]
    assert (step.is_pending, len(answers)) == (False, 2)
    assert (step.ready(), len(answers)) == (False, 1)
    assert (step.ready(), step.is_pending, answers) == (False, True, [])


def sent(result: Result) -> tuple[SimpleNamespace, SentStep]:
    waiting = SimpleNamespace(is_over=False)
    return waiting, SentStep(waiting, "fetch", lambda: result, (OSError,))  # type: ignore[arg-type, return-value]


@every_case(
    ("result", "is_over", "is_out", "ready"),
    [
        (Result(), False, True, False),
        (Result(), True, True, True),
        (Result(is_ready=True), False, False, True),
        (Result(OSError("unavailable")), False, True, False),
    ],
)
def test_a_step_is_ready_when_its_result_or_its_run_is(
    result: Result, is_over: bool, is_out: bool, ready: bool
) -> None:
    waiting, step = sent(result)
    waiting.is_over = is_over
    assert (step.is_pending, step.ready()) == (is_out, ready)
    step.revoke()
    assert result.is_revoked


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_lost_step_ends_the_wait_for_all(has_failed: bool) -> None:
    waiting, step = sent(Result(is_ready=True, has_failed=has_failed))
    assert step.get() == ["event"]
    assert (waiting.is_over, step.is_pending) == (has_failed, False)


def test_getting_a_step_without_a_result_raises_task_revoked() -> None:
    _, step = sent(Result())
    with pytest.raises(TaskRevokedError):
        step.get()
    assert not step.is_pending


S = DagsterRunStatus


@pytest.mark.parametrize(("status", "interrupts"), [(S.STARTED, 0), (S.FAILURE, 1), (None, 1)])
def test_a_run_that_ended_elsewhere_interrupts_the_wait_once(
    services: Services,
    app: celery.Celery,
    monkeypatch: pytest.MonkeyPatch,
    status: DagsterRunStatus | None,
    interrupts: int,
) -> None:
    sent_interrupts: list[bool] = []
    monkeypatch.setattr(module, "send_interrupt", lambda: sent_interrupts.append(True))
    with dg.DagsterInstance.ephemeral() as instance:
        if status is not None:
            make_run(instance, status)
        watch = StepWatch("d-1", instance, services, app)
        watch.check()
        watch.check()
    assert (len(sent_interrupts), watch.is_over) == (interrupts, interrupts == 1)


def test_a_lost_task_message_fails_the_run_after_a_timeout(
    services: Services, app: celery.Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(module, "submit_task", lambda *_: Result())
    with dg.DagsterInstance.ephemeral() as instance:
        run = make_run(instance, S.STARTED)

        def check_status() -> DagsterRunStatus:
            watch.check()
            return (instance.get_run_by_id("d-1") or run).status

        watch = StepWatch("d-1", instance, services, app)
        broker: Any = SimpleNamespace(backend=SimpleNamespace(connection_errors=()))
        for key in ("started", "lost"):
            watch.send(broker, None, SimpleNamespace(key=key))
        with services.database.transaction() as session:
            record_step_heartbeat(session, "d-1", "started", "host:1")
        assert check_status() is S.STARTED
        now += LOST_AFTER_SECONDS
        assert check_status() is S.STARTED
        queue = app.conf.task_default_queue
        app.send_task("waits in the queue", queue=queue)
        now += LOST_AFTER_SECONDS
        assert check_status() is S.STARTED, "a message in the queue is not lost"
        with app.connection_for_write() as connection:
            connection.default_channel.queue_purge(queue)
        assert check_status() is S.STARTED
        now += LOST_AFTER_SECONDS + 1
        assert check_status() is S.FAILURE
        [failure] = instance.all_logs("d-1", of_type=dg.DagsterEventType.RUN_FAILURE)
        assert "The message of step lost is lost" in failure.message


class Done(StepTask):
    """A step that records its heartbeats and returns a fixed result."""

    name = "done"
    outcome: Exception | None = None
    seen: list[str]
    database: Database

    def run(self, *_: object) -> list[str]:
        wait_until(self._has_heartbeat)
        if self.outcome:
            raise self.outcome
        return ["event"]

    def _has_heartbeat(self) -> bool:
        with self.database.reading() as session:
            self.seen = [f"{one.dagster_run_id}/{one.step_key}" for one in step_heartbeats(session)]
        return bool(self.seen)


@pytest.mark.parametrize(
    ("status", "outcome", "events", "has_run"),
    [
        (S.STARTED, None, ["event"], True),
        (S.STARTED, DagsterExecutionInterruptedError(), [], True),
        (S.CANCELING, None, [], False),
        (S.FAILURE, None, [], False),
    ],
)
def test_a_worker_executes_a_step_only_while_its_run_is_active(
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: DagsterRunStatus,
    outcome: Exception | None,
    events: list[str],
    has_run: bool,
) -> None:
    task = Done()
    task.outcome, task.seen, task.database = outcome, [], services.database
    vars(services)["settings"] = services.settings.model_copy(
        update={"automation_heartbeat_seconds": 600.0}
    )
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        make_run(instance, status)
        step_args = SimpleNamespace(
            run_id="d-1", step_keys_to_execute=["a", "b"], instance_ref=instance.get_ref()
        )
        monkeypatch.setattr(module, "unpack_step", lambda _packed: step_args)
        monkeypatch.setattr(module, "services", lambda: services)
        assert task("packed", {}) == events
    assert task.seen == (["d-1/a,b"] if has_run else [])
    with services.database.reading() as session:
        assert step_heartbeats(session) == []


class Interrupted(StepTask):
    """A step that works until its run is cancelled, and for several more heartbeats."""

    name = "interrupted"
    cancel: Callable[[], None]
    signals: list[int]
    heartbeats: Callable[[], object]

    def run(self, *_: object) -> list[str]:
        self.cancel()
        wait_until(lambda: self.signals)
        last = self.heartbeats()
        wait_until(lambda: self.heartbeats() != last)
        return []


def test_a_step_whose_run_ends_is_interrupted_once(
    services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def heartbeats() -> object:
        with services.database.reading() as session:
            return [beat.beat_at for beat in step_heartbeats(session)]

    task, signals = Interrupted(), list[int]()
    vars(services)["settings"] = services.settings.model_copy(
        update={"automation_heartbeat_seconds": 0.05}
    )
    monkeypatch.setattr(module.os, "kill", lambda _, number: signals.append(number))
    monkeypatch.setattr(module, "services", lambda: services)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = make_run(instance, S.STARTED)
        task.signals, task.heartbeats = signals, heartbeats
        task.cancel = lambda: instance.report_run_canceling(run)
        step_args = SimpleNamespace(
            run_id="d-1", step_keys_to_execute=["a"], instance_ref=instance.get_ref()
        )
        monkeypatch.setattr(module, "unpack_step", lambda _packed: step_args)
        task("packed", {})
    assert signals == [signal.SIGINT]
    assert heartbeats() == []


def test_steps_of_a_run_are_sent_to_the_configured_broker_and_watched(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(redis_url="redis://a/1", automation_celery_concurrency=2)
    executor = StepsOnWorkers(settings, services)
    assert (executor.broker, executor.backend) == ("redis://a/1", "redis://a/1")
    assert executor.config_source.worker_concurrency == 2
    sent: list[object] = []

    def loop(plan_context: object, plan: object, *, step_execution_fn: Any) -> Any:
        sent.extend([plan_context, plan, step_execution_fn.__func__])
        yield "event"

    monkeypatch.setattr(module, "core_celery_execution_loop", loop)
    checks: list[StepWatch] = []

    def check(watch: StepWatch) -> None:
        checks.append(watch)

    monkeypatch.setattr(StepWatch, "check", check)
    plan_context: Any = SimpleNamespace(run_id="d-1", instance=None)
    assert list(executor.execute(plan_context, "plan")) == ["event"]  # type: ignore[arg-type]
    assert sent == [plan_context, "plan", StepWatch.send]
    assert checks


def test_the_application_of_workers_executes_steps_with_heartbeats(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "load_settings", lambda: Settings(redis_url="redis://a/1"))
    monkeypatch.setattr(module, "services", lambda: services)
    module._worker_app.cache_clear()
    try:
        app = module.app
        assert app is module.app
    finally:
        module._worker_app.cache_clear()
    assert (app.conf.broker_url, app.conf.include) == ("redis://a/1", module.PRELOADED)
    assert isinstance(app.tasks["execute_plan"], StepTask)
    with pytest.raises(AttributeError, match="other"):
        _ = module.other
