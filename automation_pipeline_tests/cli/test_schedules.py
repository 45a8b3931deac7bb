"""Tests of `automation schedules`: create, show, occurrences, and run-now."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.tables import RunRow, ScheduleRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.audits import configurations
from automation_pipeline_tests.cli.terminal import DAILY, Terminal, open_terminal
from automation_pipeline_tests.waiting import wait_until

BEFORE_SPRING, BEFORE_AUTUMN = "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def occurrences(terminal: Terminal, schedule_id: str, after: str, count: int = 3) -> list[str]:
    answer = terminal.json(
        "schedules", "next", schedule_id, "--after", after, "--count", str(count)
    )
    assert set(answer) == {"occurrences"}
    return answer["occurrences"]


def requests(terminal: Terminal) -> list[RunRequestRow]:
    with terminal.database.reading() as session:
        return list(session.scalars(select(RunRequestRow)))


def test_a_schedule_from_standard_input_round_trips(terminal: Terminal) -> None:
    configs = [str(configurations.add(terminal.database, name)) for name in ("Sales", "Service")]
    given = DAILY | {
        "description": "Every morning — é",
        "isActive": False,
        "ficheSelection": {
            "mode": "date_range",
            "dateRange": "yesterday",
            "groupes": ["TEAM R1"],
            "maxFiches": 50,
        },
        "specificAuditConfigs": configs,
        "transcriptionPriority": "high",
        "maxRetries": 2,
        "webhookUrl": "https://hooks.test/a",
        "notifyEmails": ["ops@example.test"],
        "shortMonths": "last_day",
        "catchUp": "all",
        "catchUpLimit": 3,
        "jitterSeconds": 60,
        "pauseAfterFailures": 3,
    }
    stored = terminal.json("schedules", "create", "--file", "-", given=given)
    assert stored["id"] == "1"
    assert {name: stored[name] for name in given if name != "ficheSelection"} == {
        name: value for name, value in given.items() if name != "ficheSelection"
    }
    assert given["ficheSelection"].items() <= stored["ficheSelection"].items()
    assert (stored["totalRuns"], stored["lastRunAt"]) == (0, None)
    assert stored["createdAt"].endswith("Z")
    assert terminal.json("schedules", "show", "1") == stored
    assert terminal.json("schedules", "list", "--include-inactive") == {"schedules": [stored]}


def test_a_schedule_file_may_start_with_a_byte_order_mark(terminal: Terminal) -> None:
    for number, encoding in enumerate(("utf-8", "utf-8-sig"), start=1):
        (terminal.folder / "schedule.json").write_text(json.dumps(DAILY), encoding=encoding)
        stored = terminal.json("schedules", "create", "-f", "schedule.json")
        assert (stored["id"], stored["name"]) == (str(number), "Sales")


def test_a_created_schedule_is_confirmed_in_text_output(terminal: Terminal) -> None:
    ended = terminal.run("schedules", "create", "--file", "-", given=json.dumps(DAILY).encode())
    assert (ended.code, ended.err) == (0, "")
    lines = [line.rstrip() for line in ended.out.splitlines()]
    assert lines[:-3] == [
        "schedule         1  Sales",
        "type             DAILY, active, Europe/Paris",
        "when             every day at 02:30",
        'selection        {"mode":"manual","ficheIds":["1900417"]}',
        "steps            details, transcription (normal priority), audits by the",
        "                 automatic configurations",
        "on errors        continues",
        "after an outage  skips missed due times",
        "runs             0 in total, 0 failed",
        "Europe/Paris               UTC",
    ]
    assert len(lines) == 13, "the page ends with the next three occurrences"


@pytest.mark.parametrize("name", ["[/x] [bold]loud", "a\nb", "é 漢字", "\x1b"])
def test_special_characters_in_a_name_are_shown(terminal: Terminal, name: str) -> None:
    schedule_id = terminal.create(name=name)
    for arguments in (["list"], ["show", schedule_id]):
        ended = terminal.run("schedules", *arguments)
        assert (ended.code, ended.err) == (0, "")
        assert name.splitlines()[0].replace("\x1b", "") in ended.out
    assert terminal.json("schedules", "show", schedule_id)["name"] == name


def test_an_external_api_key_is_stored_and_never_printed(terminal: Terminal) -> None:
    given = json.dumps(DAILY | {"externalApiKey": "s3cret"}).encode()
    output = [
        terminal.run("schedules", "create", "--file", "-", *flag, given=given)
        for flag in ([], ["--json"])
    ]
    output += [
        terminal.run("schedules", *arguments)
        for arguments in (["show", "1"], ["show", "1", "--json"], ["list"])
    ]
    output += [
        terminal.run("schedules", *arguments)
        for arguments in (["list", "--json"], ["run-now", "1", "--json"])
    ]
    assert [ended.code for ended in output] == [0] * 7
    assert not any("s3cret" in ended.out + ended.err for ended in output)
    with terminal.database.reading() as session:
        assert set(session.scalars(select(ScheduleRow.external_api_key))) == {"s3cret"}


def test_paused_schedules_are_listed_on_request(terminal: Terminal) -> None:
    active, paused = terminal.create(), terminal.create(isActive=False)
    assert [found["id"] for found in terminal.json("schedules", "list")["schedules"]] == [active]
    everything = terminal.json("schedules", "list", "--include-inactive")["schedules"]
    assert [found["id"] for found in everything] == [paused, active]


@pytest.mark.parametrize(
    ("fields", "after", "coming"),
    [
        (
            {},
            BEFORE_SPRING,
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
        ),
        (
            {},
            BEFORE_AUTUMN,
            ["2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"],
        ),
        (
            {},
            "2026-03-28T13:00:00+01:00",
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
        ),
        (
            {},
            "2026-03-29T01:00:00",
            ["2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z", "2026-04-01T00:30:00Z"],
        ),
        (
            {"timezone": "UTC"},
            BEFORE_SPRING,
            ["2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z", "2026-03-31T02:30:00Z"],
        ),
        (
            {"scheduleType": "WEEKLY", "dayOfWeek": 0},
            BEFORE_SPRING,
            ["2026-03-29T01:00:00Z", "2026-04-05T00:30:00Z", "2026-04-12T00:30:00Z"],
        ),
        (
            {"scheduleType": "MONTHLY", "dayOfMonth": 31},
            BEFORE_SPRING,
            ["2026-03-31T00:30:00Z", "2026-05-31T00:30:00Z", "2026-07-31T00:30:00Z"],
        ),
        (
            {"scheduleType": "CRON", "cronExpression": "0 * * * *"},
            "2026-03-29T00:30:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T03:00:00Z"],
        ),
        (
            {
                "scheduleType": "MONTHLY",
                "dayOfMonth": 31,
                "shortMonths": "last_day",
                "timezone": "UTC",
            },
            "2028-02-01T00:00:00Z",
            ["2028-02-29T02:30:00Z", "2028-03-31T02:30:00Z", "2028-04-30T02:30:00Z"],
        ),
        (
            {
                "scheduleType": "MONTHLY",
                "dayOfMonth": 29,
                "shortMonths": "last_day",
                "timezone": "UTC",
            },
            "2027-02-01T00:00:00Z",
            ["2027-02-28T02:30:00Z", "2027-03-29T02:30:00Z", "2027-04-29T02:30:00Z"],
        ),
        (
            {"timezone": "America/New_York"},
            "2026-03-07T12:00:00Z",
            ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"],
        ),
        (
            {"timezone": "America/New_York", "timeOfDay": "01:30"},
            "2026-10-31T12:00:00Z",
            ["2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z", "2026-11-03T06:30:00Z"],
        ),
        ({"scheduleType": "MANUAL"}, BEFORE_SPRING, []),
    ],
)
def test_upcoming_occurrences_follow_the_schedules_local_time(
    terminal: Terminal, fields: dict[str, object], after: str, coming: list[str]
) -> None:
    assert occurrences(terminal, terminal.create(**fields), after) == coming


def test_occurrences_start_now_by_default(terminal: Terminal) -> None:
    coming = terminal.json("schedules", "next", terminal.create())["occurrences"]
    assert len(coming) == 10
    assert coming[0] > f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_text_output_shows_local_time_and_utc(terminal: Terminal) -> None:
    ended = terminal.run(
        "schedules", "next", terminal.create(), "--after", BEFORE_SPRING, "--count", "1"
    )
    assert "Sun 29 Mar 2026 03:00 CEST  2026-03-29 01:00" in ended.out
    manual = terminal.run("schedules", "next", terminal.create(scheduleType="MANUAL"))
    assert "runs only on request" in manual.out


def test_run_now_creates_one_request_and_one_pending_run(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    answer = terminal.json("schedules", "run-now", schedule_id)
    assert answer == {"run_id": "1", "schedule_id": schedule_id, "status": "pending"}
    [request] = requests(terminal)
    assert (request.job, request.state) == ("automation_run", "waiting")
    assert request.config == {"schedule_id": 1, "run_id": 1}
    assert request.tags["automation/run_id"] == "1"
    [run] = terminal.json("runs", "list")["runs"]
    assert (run["id"], run["scheduleId"], run["status"], run["trigger"]) == (
        "1",
        schedule_id,
        "pending",
        "manual",
    )


def test_a_selection_override_is_stored_with_the_run_only(
    terminal: Terminal,
) -> None:
    schedule_id = terminal.create()
    (terminal.folder / "two.json").write_text('{"mode": "manual", "ficheIds": ["7", "8"]}')
    ended = terminal.run("schedules", "run-now", schedule_id, "--selection", "two.json")
    assert ended.out == "Run 1 is requested: `automation runs show 1` shows its status.\n"
    with terminal.database.reading() as session:
        [run] = session.scalars(select(RunRow))
    overrides = run.config_snapshot["overrides"]
    assert isinstance(overrides, dict)
    assert overrides["ficheIds"] == ["7", "8"]
    assert terminal.json("schedules", "show", schedule_id)["ficheSelection"]["ficheIds"] == [
        "1900417"
    ]


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (
            '{"mode": "all"}',
            "Invalid fiche selection data: mode: must be 'date_range', 'manual' or 'filter'.\n",
        ),
        ('{"ficheIds": []}', "Invalid fiche selection data: mode: is required.\n"),
    ],
)
def test_an_invalid_selection_creates_no_request(
    terminal: Terminal, selection: str, sentence: str
) -> None:
    schedule_id = terminal.create()
    ended = terminal.run(
        "schedules", "run-now", schedule_id, "--selection", "-", given=selection.encode()
    )
    assert (ended.code, ended.out, ended.err) == (2, "", sentence)
    assert requests(terminal) == []


def test_run_now_on_a_paused_schedule_creates_no_request(terminal: Terminal) -> None:
    schedule_id = terminal.create(isActive=False)
    ended = terminal.run("schedules", "run-now", schedule_id, "--json")
    assert (ended.code, ended.out, ended.err) == (1, "", f"Schedule {schedule_id} is not active.\n")
    assert requests(terminal) == []
    assert terminal.json("runs", "list") == {"runs": []}


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("partial", 0), ("failed", 1)])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_waiting_for_a_run_exits_with_its_result(
    terminal: Terminal, status: str, code: int, flags: list[str]
) -> None:
    schedule_id, database = terminal.create(), terminal.database

    def end_run() -> None:
        wait_until(lambda: bool(requests(terminal)))
        with database.transaction() as session:
            session.execute(update(RunRow).values(status=status, completed_at=datetime.now(UTC)))

    dagster = threading.Thread(target=end_run)
    dagster.start()
    ended = terminal.run("schedules", "run-now", schedule_id, "--wait", *flags)
    dagster.join()
    assert (ended.code, ended.err) == (code, "")
    if flags:
        assert json.loads(ended.out) == {
            "run_id": "1",
            "schedule_id": schedule_id,
            "status": status,
        }
