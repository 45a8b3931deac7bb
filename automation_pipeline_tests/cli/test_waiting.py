"""Tests of --wait, --timeout, and --here in every command that requests work."""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from automation_pipeline import bootstrap, cli
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli import progress as waiting
from automation_pipeline.cli.progress import (
    FollowedRequest,
    LaunchWait,
    follow_requests,
    follows,
)
from automation_pipeline.core.launching import DagsterFacts, NotStartedError
from automation_pipeline.storage.monitoring import DAEMON, record_heartbeat
from automation_pipeline.storage.run_requests import (
    NewRunRequest,
    file_requests,
    mark_refused,
    mark_taken,
    offer_waiting,
)
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock

CONFIGURATION = Path(__file__).parents[1] / "e2e" / "five_steps.json"


class IdleProbe:
    """A Dagster probe that immediately finds no daemon."""

    def begin(self) -> None: ...

    def facts(self) -> DagsterFacts:
        return DagsterFacts()


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Return a terminal with immediate start timeouts."""
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(Services, "dagster_probe", lambda _services: IdleProbe())
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def commands(terminal: Terminal) -> dict[str, tuple[str, ...]]:
    schedule = terminal.create()
    config_id = terminal.json("audit-configs", "import", str(CONFIGURATION))["id"]
    terminal.export(RECHERCHE_ENTREPRISES_BASE_URL="http://127.0.0.1:9")
    return {
        "transcribe": ("transcribe", "7"),
        "audit": ("audit", "7", "--config", str(config_id)),
        "run-now": ("schedules", "run-now", schedule),
        "enrich": ("enrich", "552032534"),
    }


def test_without_a_daemon_every_command_fails_with_a_message(
    terminal: Terminal, commands: dict[str, tuple[str, ...]]
) -> None:
    wrong = []
    for name, arguments in commands.items():
        plain = terminal.run(*arguments, "--wait")
        terminal.run("runs", "cancel", "1", "--yes")
        as_json = terminal.run(*arguments, "--wait", "--json")
        message = as_json.error or {}
        sentence = (
            "Dagster's daemon has no heartbeat" in plain.err and len(plain.err.splitlines()) == 1
        )
        document = (
            message.get("code") == "NO_DAEMON"
            and "no heartbeat" in message["message"]
            and "details" in message
        )
        if (plain.code, as_json.code, as_json.out) != (1, 1, "") or not sentence or not document:
            wrong.append((name, plain, as_json))
    assert wrong == []


def test_command_startup_time_counts_towards_the_start_timeout(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr(waiting, "MIN_START_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(cli, "STARTED_AT", time.monotonic() - 100)
    started_at = time.monotonic()
    ended = terminal.run("transcribe", "7", "--wait")
    assert (ended.code, "Nothing has started" in ended.err, time.monotonic() - started_at < 30) == (
        1,
        True,
        True,
    )


def test_a_rejected_request_is_reported_with_the_reason(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(probe: IdleProbe) -> None:
        with terminal.database.transaction() as session:
            record_heartbeat(session, DAEMON)
            [request] = offer_waiting(session, limit=9)
            mark_refused(session, request.key, "The run queue is closed.")

    monkeypatch.setattr(waiting, "PROBE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(IdleProbe, "begin", refuse)
    ended = terminal.run("transcribe", "7", "--wait", "--json")
    assert ended.code == 1
    assert ended.error
    assert "The run queue is closed" in ended.error["message"]


def test_a_timeout_ends_the_wait_but_not_the_work(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 60.0)
    ended = terminal.run("transcribe", "7", "--timeout", "0.1", "--json")
    assert (ended.code, ended.error and ended.error["code"]) == (1, "TIMEOUT")
    assert ended.err == "Not done within 0.1 s; the work continues without this command.\n"


def test_the_here_option_is_rejected_with_a_remote_api(terminal: Terminal) -> None:
    ended = terminal.run("--api", "http://127.0.0.1:9", "--token", "t", "transcribe", "7", "--here")
    assert ended.code == 2
    assert "works only on the local machine" in ended.err


def test_errors_are_one_json_document_with_the_json_option(terminal: Terminal) -> None:
    wrong = []
    for arguments, code, exit_code in (
        ("runs show 77 --json", "NOT_FOUND", 1),
        ("transcribe abc --json", "VALIDATION_ERROR", 2),
        ("transcribe --json", "USAGE_ERROR", 2),
        ("schedules run-now 77 --json", "NOT_FOUND", 1),
    ):
        ended = terminal.run(*arguments.split())
        message = ended.error or {}
        if (ended.code, ended.out, message.get("code")) != (exit_code, "", code) or not message.get(
            "message"
        ):
            wrong.append((arguments, ended))
    assert wrong == []


class FakeProbe:
    """A probe of Dagster that counts how often it begins."""

    def __init__(self) -> None:
        self.begin_count = 0

    def begin(self) -> None:
        self.begin_count += 1

    def facts(self) -> DagsterFacts:
        return DagsterFacts()


class FakeWorker:
    """A worker in this process that counts how often it is checked."""

    def __init__(self) -> None:
        self.checked = 0

    def check(self) -> None:
        self.checked += 1

    def wait(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Replace the pauses between two polls, and record them."""
    pauses: list[None] = []
    monkeypatch.setattr(waiting, "pause", lambda: pauses.append(None))
    return pauses


@pytest.fixture
def probe(terminal: Terminal, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> FakeProbe:
    """Return the probe of services whose clock is `clock`. The command has just started."""
    probe = FakeProbe()
    assert terminal.database
    monkeypatch.setattr(Services, "dagster_probe", lambda _services: probe)
    monkeypatch.setattr(bootstrap.services(), "clock", clock)
    monkeypatch.setattr(cli, "STARTED_AT", time.monotonic())
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 600.0)
    return probe


def poll(waits: LaunchWait, clock: FakeClock, seconds: float, *, has_started: bool = False) -> None:
    clock.advance(timedelta(seconds=seconds))
    waits.pause(has_started=has_started)


def test_dagster_is_probed_once_after_two_seconds_and_the_reason_follows_after_the_timeout(
    probe: FakeProbe, clock: FakeClock, pauses: list[None]
) -> None:
    waits = LaunchWait(["key-1"])
    poll(waits, clock, 1.9)
    assert (probe.begin_count, len(pauses)) == (0, 1)
    poll(waits, clock, 0.1)
    poll(waits, clock, 588)
    assert (probe.begin_count, len(pauses)) == (1, 3)
    poll(waits, clock, 10, has_started=True)
    with pytest.raises(NotStartedError) as ended:
        poll(waits, clock, 0)
    assert (ended.value.code, dict(ended.value.details)) == ("NO_DAEMON", {"requests": ["key-1"]})
    assert str(ended.value) == (
        "Nothing has started within 600 s. Dagster's daemon has no heartbeat (there was none yet): "
        "`dagster dev` or `dagster-daemon run` starts it."
    )
    assert (probe.begin_count, len(pauses)) == (1, 4)


@pytest.mark.parametrize(
    ("command_seconds", "limit", "timeout"),
    [(0, 12.0, 12), (4, 12.0, 8), (100, 12.0, 5), (-100, 12.0, 12), (100, 2.0, 2)],
)
def test_the_start_timeout_counts_from_the_command_within_limits(
    probe: FakeProbe,
    clock: FakeClock,
    pauses: list[None],
    monkeypatch: pytest.MonkeyPatch,
    command_seconds: float,
    limit: float,
    timeout: float,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "START_TIMEOUT_SECONDS", limit)
        patch.setattr(time, "monotonic", lambda: 1000.0 + command_seconds)
        patch.setattr(cli, "STARTED_AT", 1000.0)
        waits = LaunchWait()
    poll(waits, clock, timeout - 0.1)
    with pytest.raises(NotStartedError, match=f"^Nothing has started within {timeout} s"):
        poll(waits, clock, 0.1)


def test_a_reason_of_the_caller_takes_precedence(
    probe: FakeProbe, clock: FakeClock, pauses: list[None]
) -> None:
    reason = NotStartedError("PAUSED", "The shop is paused.", {"shop": "x"})
    waits = LaunchWait(["key-1"], why=lambda: reason)
    with pytest.raises(NotStartedError) as ended:
        poll(waits, clock, 601)
    assert (ended.value.code, dict(ended.value.details)) == (
        "PAUSED",
        {"requests": ["key-1"], "shop": "x"},
    )
    assert str(ended.value) == "Nothing has started within 601 s. The shop is paused."
    with pytest.raises(NotStartedError, match="no heartbeat"):
        poll(LaunchWait(why=lambda: None), clock, 601)


def test_a_worker_is_checked_instead_of_the_daemon(
    probe: FakeProbe, clock: FakeClock, pauses: list[None]
) -> None:
    worker = FakeWorker()
    waits = LaunchWait(["key-1"], timeout=700, worker=worker)
    poll(waits, clock, 650)
    poll(waits, clock, 49, has_started=True)
    assert (probe.begin_count, worker.checked, len(pauses)) == (0, 2, 2)
    with pytest.raises(NotStartedError) as ended:
        poll(waits, clock, 1)
    assert (ended.value.code, str(ended.value)) == ("TIMEOUT", "Not done within 700 s.")
    assert dict(ended.value.details) == {"requests": ["key-1"]}
    with pytest.raises(
        NotStartedError, match=r"^Not done within 0\.5 s; the work continues without"
    ):
        poll(LaunchWait(timeout=0.5), clock, 0.5)


@pytest.mark.parametrize(
    ("options", "is_followed"),
    [
        ({"wait": False, "timeout": None, "here": False}, False),
        ({"wait": True, "timeout": None, "here": False}, True),
        ({"wait": False, "timeout": 0.0, "here": False}, True),
        ({"wait": False, "timeout": None, "here": True}, True),
    ],
)
def test_wait_timeout_and_here_follow_the_work(
    terminal: Terminal, options: dict[str, Any], is_followed: bool
) -> None:
    assert follows("transcribe", **options) is is_followed


def test_followed_requests_are_returned_in_order_when_all_have_ended(
    probe: FakeProbe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fiches = {f"key-{number}": str(number) for number in range(60)}
    started: list[bool] = []
    monkeypatch.setattr(
        LaunchWait, "pause", lambda _waits, *, has_started: started.append(has_started)
    )
    asked: list[int] = []

    def statuses(keys: Sequence[str]) -> Sequence[FollowedRequest[int]]:
        asked.append(len(keys))
        found: int | str | None = len(started) if started else None
        return [
            FollowedRequest.of(key, fiches[key], "No" if key == "key-3" and started else found)
            for key in reversed(keys)
        ]

    ended = follow_requests(
        fiches,
        statuses,
        lambda status: ("work", status, 3, status == 3),
        on_interrupt="It continues.",
        quiet=True,
        waits=LaunchWait(),
    )
    assert [one.key for one in ended] == list(fiches)
    assert (ended[3].refused, ended[3].standing) == ("No", None)
    assert {one.standing for one in ended} == {3, None}
    assert started == [False, True, True]
    assert asked == [50, 10] * 4


class RecordingWorker(FakeWorker):
    """A worker in this process that records its keys and calls."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__()
        self.keys, self.calls = list(keys), list[str]()

    def wait(self) -> None:
        self.calls.append("wait")

    def close(self) -> None:
        self.calls.append("close")


def test_the_here_option_executes_waiting_requests_in_this_process(
    probe: FakeProbe, clock: FakeClock, pauses: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[RecordingWorker] = []

    def local_worker(_services: Services, keys: Sequence[str]) -> RecordingWorker:
        workers.append(RecordingWorker(keys))
        return workers[-1]

    monkeypatch.setattr(Services, "local_worker", local_worker)
    requests = [NewRunRequest(key, "audit_fiche", {}, {}) for key in ("key-1", "key-2")]
    with bootstrap.services().database.transaction() as session:
        file_requests(session, requests, clock.now())
        mark_taken(session, "key-2", "dagster-1")
    with waiting.waiting(["key-1", "key-2"], here=True, timeout=900) as waits:
        poll(waits, clock, 700)
        assert (workers[0].keys, workers[0].checked, workers[0].calls) == (["key-1"], 1, [])
    assert (workers[0].calls, probe.begin_count) == (["wait", "close"], 0)
    with pytest.raises(ZeroDivisionError), waiting.waiting(["key-1"], here=True):
        raise ZeroDivisionError
    assert workers[1].calls == ["close"]
    with pytest.raises(NotStartedError, match="no heartbeat"), waiting.waiting(["key-1"]) as waits:
        poll(waits, clock, 700)
    assert len(workers) == 2


@pytest.mark.parametrize("quiet", [True, False])
def test_followed_requests_have_a_bar_each(
    probe: FakeProbe, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    found: dict[str, int | str | None] = {"key-1": 7, "key-2": "No"}
    follow_requests(
        {"key-1": "11", "key-2": "12"},
        lambda keys: [
            FollowedRequest.of(key, key.replace("key-", "1"), found[key]) for key in keys
        ],
        lambda status: ("work", status, 9, True),
        on_interrupt="It continues.",
        quiet=quiet,
        waits=LaunchWait(),
    )
    printed = capsys.readouterr().out
    assert ("fiche 11: work" in printed, "7/9" in printed, "fiche 12: failed" in printed) == (
        (False,) * 3 if quiet else (True,) * 3
    )
