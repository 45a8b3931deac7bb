"""Injects faults into a world. Each injection returns the function that ends the fault, or None if it
needs no end."""

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS, kill
from automation_pipeline_tests.survival.clock import shift_clock
from automation_pipeline_tests.survival.plan import Fault, Kind
from automation_pipeline_tests.survival.progress import (
    has_ended,
    process_at_work,
    process_that_waits,
    run_worker_of,
)
from automation_pipeline_tests.survival.world import World
from automation_pipeline_tests.waiting import wait_until

Repair = Callable[[], None] | None
FORWARD_SECONDS, BACK_SECONDS = 3600.0, -20.0


def is_forward(fault: Fault) -> bool:
    return fault.chance < 0.5


STORM = [
    {"route": "crm.details", "probability": 0.4, "status": 503},
    {"route": "speech.transcribe", "probability": 0.2, "status": 500},
    {"route": "speech.transcribe", "probability": 0.2, "drop": True},
    {"route": "llm.complete", "probability": 0.2, "status": 503},
    {"route": "llm.complete", "probability": 0.2, "drop": True, "after": True},
    {"route": "llm.complete", "probability": 0.1, "body": "truncated"},
    {"route": "pusher.batch", "probability": 0.5, "status": 503},
]


class NoTargetError(Exception):
    """The run had ended before the fault."""


@dataclass(frozen=True)
class Injection:
    world: World
    run_id: int
    fault: Fault

    def worker(self) -> psutil.Process:
        """The process that executes a step, once there is one."""
        found: list[psutil.Process] = []

        def worker_is_known() -> bool:
            process = process_at_work(self.world.database, self.run_id)
            found.extend([process] if process else [])
            return bool(found) or has_ended(self.world.database, self.run_id)

        wait_until(worker_is_known, TIMEOUT_SECONDS)
        if not found:
            raise NoTargetError
        return found[0]

    def run_worker(self) -> psutil.Process:
        step = self.worker()
        if self.world.executor != "celery":
            return run_worker_of(step)
        process = process_that_waits(self.world.database, self.run_id)
        if process is None:
            raise NoTargetError
        return process


def inject(world: World, run_id: int, fault: Fault) -> Repair:
    try:
        return INJECTIONS[fault.kind](Injection(world, run_id, fault))
    except psutil.NoSuchProcess:
        raise NoTargetError from None


def _kill_run_worker(injection: Injection) -> Repair:
    kill(injection.run_worker().pid)
    return None


def _kill_step(injection: Injection) -> Repair:
    kill(injection.worker().pid)
    return None


def _pause_run(injection: Injection) -> Repair:
    """With Celery, either the process that waits for the steps or the one that executes a step."""
    if injection.world.executor == "celery" and injection.fault.chance < 0.5:
        return _stop([injection.worker()])
    oldest = injection.run_worker()
    return _stop([oldest, *oldest.children(recursive=True)])


def _pause_daemon(injection: Injection) -> Repair:
    return _stop([psutil.Process(injection.world.roles["daemon"].pid)])


def _stop(processes: list[psutil.Process]) -> Repair:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)

    def resume() -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    return resume


def _kill_role(role: str) -> Callable[[Injection], Repair]:
    def killed(injection: Injection) -> Repair:
        injection.world.kill(role)
        return lambda: injection.world.start_role(role)

    return killed


def _kill_api(injection: Injection) -> Repair:
    injection.world.kill("api")

    def start() -> None:
        injection.world.start_role("api")
        wait_until(injection.world.answers, TIMEOUT_SECONDS)

    return start


def _kill_code_server(injection: Injection) -> Repair:
    """The daemon restarts a code server that it started itself."""
    if "code-server" in injection.world.commands():
        injection.world.kill("code-server", whole=True)
        return lambda: injection.world.start_role("code-server")
    servers = [process for process in injection.world.processes() if "grpc" in process.cmdline()]
    if not servers:
        raise NoTargetError
    for server in servers:
        kill(server.pid)
    return None


def _start_second_daemon(injection: Injection) -> Repair:
    name = f"second daemon of run {injection.run_id}"
    if name in injection.world.roles:
        raise NoTargetError
    injection.world.start_role("daemon", name=name)

    def end() -> None:
        process = injection.world.roles.pop(name)
        kill(process.pid)
        process.wait()

    return end


def _stop_postgres(injection: Injection) -> Repair:
    assert injection.world.postgres
    injection.world.postgres.stop()
    return injection.world.postgres.start


def _stop_redis(injection: Injection) -> Repair:
    assert injection.world.redis
    injection.world.redis.stop()
    return injection.world.redis.start


def _fill_disk(injection: Injection) -> Repair:
    assert injection.world.disk
    return injection.world.disk.fill(injection.world.processes)


def _move_clock(injection: Injection) -> Repair:
    shift_clock(
        injection.world.database, FORWARD_SECONDS if is_forward(injection.fault) else BACK_SECONDS
    )
    return None


def _start_storm(injection: Injection) -> Repair:
    injection.world.set_provider_faults(*STORM)
    return injection.world.set_provider_faults


def _kill_celery_worker(injection: Injection) -> Repair:
    name = sorted(role for role in injection.world.roles if role.startswith("celery"))[
        injection.fault.chance < 0.5
    ]
    injection.world.kill(name, whole=True)
    return lambda: injection.world.start_role(name)


INJECTIONS: Mapping[Kind, Callable[[Injection], Repair]] = {
    Kind.RUN_WORKER: _kill_run_worker,
    Kind.STEP: _kill_step,
    Kind.PAUSE: _pause_run,
    Kind.DAEMON: _kill_role("daemon"),
    Kind.PAUSED_DAEMON: _pause_daemon,
    Kind.TWO_DAEMONS: _start_second_daemon,
    Kind.CODE_SERVER: _kill_code_server,
    Kind.API: _kill_api,
    Kind.CELERY_WORKER: _kill_celery_worker,
    Kind.CELERY_CHILD: _kill_step,
    Kind.DATABASE: _stop_postgres,
    Kind.REDIS: _stop_redis,
    Kind.DISK_FULL: _fill_disk,
    Kind.CLOCK: _move_clock,
    Kind.STORM: _start_storm,
}
