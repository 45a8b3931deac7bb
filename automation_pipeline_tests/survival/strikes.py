"""Does a fault to a world. Each strike returns what ends it, called when its seconds are over; None
where it is over at once."""

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from automation_pipeline_tests.e2e.system import PATIENCE, kill
from automation_pipeline_tests.survival.clock import leap
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


class NothingToStrikeError(Exception):
    """The run was over first: this is no fault."""


@dataclass(frozen=True)
class Strike:
    world: World
    run_id: int
    fault: Fault

    def worker(self) -> psutil.Process:
        """Whoever is at work, once somebody is."""
        found: list[psutil.Process] = []

        def somebody() -> bool:
            process = process_at_work(self.world.database, self.run_id)
            found.extend([process] if process else [])
            return bool(found) or has_ended(self.world.database, self.run_id)

        wait_until(somebody, PATIENCE)
        if not found:
            raise NothingToStrikeError
        return found[0]

    def run_worker(self) -> psutil.Process:
        step = self.worker()
        if self.world.executor != "celery":
            return run_worker_of(step)
        process = process_that_waits(self.world.database, self.run_id)
        if process is None:
            raise NothingToStrikeError
        return process


def strike(world: World, run_id: int, fault: Fault) -> Repair:
    try:
        return STRIKES[fault.kind](Strike(world, run_id, fault))
    except psutil.NoSuchProcess:
        raise NothingToStrikeError from None


def _kill_run_worker(strike: Strike) -> Repair:
    kill(strike.run_worker().pid)
    return None


def _kill_step(strike: Strike) -> Repair:
    kill(strike.worker().pid)
    return None


def _pause_run(strike: Strike) -> Repair:
    """With Celery either who waits for the steps, or who works on one."""
    if strike.world.executor == "celery" and strike.fault.chance < 0.5:
        return _stopped([strike.worker()])
    oldest = strike.run_worker()
    return _stopped([oldest, *oldest.children(recursive=True)])


def _pause_daemon(strike: Strike) -> Repair:
    return _stopped([psutil.Process(strike.world.roles["daemon"].pid)])


def _stopped(processes: list[psutil.Process]) -> Repair:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)

    def go_on() -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    return go_on


def _kill_role(role: str) -> Callable[[Strike], Repair]:
    def killed(strike: Strike) -> Repair:
        strike.world.kill(role)
        return lambda: strike.world.begin(role)

    return killed


def _kill_api(strike: Strike) -> Repair:
    strike.world.kill("api")

    def start() -> None:
        strike.world.begin("api")
        wait_until(strike.world.answers, PATIENCE)

    return start


def _kill_code_server(strike: Strike) -> Repair:
    """The daemon looks after one that it has started itself."""
    if "code-server" in strike.world.commands():
        strike.world.kill("code-server", whole=True)
        return lambda: strike.world.begin("code-server")
    servers = [process for process in strike.world.family() if "grpc" in process.cmdline()]
    if not servers:
        raise NothingToStrikeError
    for server in servers:
        kill(server.pid)
    return None


def _begin_second_daemon(strike: Strike) -> Repair:
    name = f"daemon beside run {strike.run_id}"
    if name in strike.world.roles:
        raise NothingToStrikeError
    strike.world.begin("daemon", name=name)

    def end() -> None:
        process = strike.world.roles.pop(name)
        kill(process.pid)
        process.wait()

    return end


def _stop_postgres(strike: Strike) -> Repair:
    assert strike.world.postgres
    strike.world.postgres.stop()
    return strike.world.postgres.start


def _stop_redis(strike: Strike) -> Repair:
    assert strike.world.redis
    strike.world.redis.stop()
    return strike.world.redis.start


def _fill_disk(strike: Strike) -> Repair:
    assert strike.world.disk
    return strike.world.disk.fill(strike.world.family)


def _move_clock(strike: Strike) -> Repair:
    leap(strike.world.database, FORWARD_SECONDS if is_forward(strike.fault) else BACK_SECONDS)
    return None


def _begin_storm(strike: Strike) -> Repair:
    strike.world.weather(*STORM)
    return strike.world.weather


def _kill_celery_worker(strike: Strike) -> Repair:
    name = sorted(role for role in strike.world.roles if role.startswith("celery"))[
        strike.fault.chance < 0.5
    ]
    strike.world.kill(name, whole=True)
    return lambda: strike.world.begin(name)


STRIKES: Mapping[Kind, Callable[[Strike], Repair]] = {
    Kind.RUN_WORKER: _kill_run_worker,
    Kind.STEP: _kill_step,
    Kind.PAUSE: _pause_run,
    Kind.DAEMON: _kill_role("daemon"),
    Kind.PAUSED_DAEMON: _pause_daemon,
    Kind.TWO_DAEMONS: _begin_second_daemon,
    Kind.CODE_SERVER: _kill_code_server,
    Kind.API: _kill_api,
    Kind.CELERY_WORKER: _kill_celery_worker,
    Kind.CELERY_CHILD: _kill_step,
    Kind.DATABASE: _stop_postgres,
    Kind.REDIS: _stop_redis,
    Kind.DISK_FULL: _fill_disk,
    Kind.CLOCK: _move_clock,
    Kind.STORM: _begin_storm,
}
