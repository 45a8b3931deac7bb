"""Tests of updating, pausing, skipping, deleting, and showing schedules."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.automation.tables import OccurrenceRow, RunRow, ScheduleRow
from automation_pipeline_tests.audits.harness import AuditHarness, call
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def set_columns(terminal: Terminal, **columns: object) -> None:
    with terminal.database.transaction() as session:
        session.execute(update(ScheduleRow).values(**columns))


def test_a_patch_changes_only_named_fields_and_null_clears(terminal: Terminal) -> None:
    schedule_id = terminal.create(
        description="Old", webhookUrl="https://hooks.test/a", pauseAfterFailures=3
    )
    patch = {
        "name": "New",
        "description": None,
        "webhookUrl": "",
        "pauseAfterFailures": None,
        "timeOfDay": "04:00",
    }
    answer = terminal.json("schedules", "update", schedule_id, "--file", "-", given=patch)
    assert answer == terminal.json("schedules", "show", schedule_id)
    result = [
        answer[name]
        for name in ("name", "description", "webhookUrl", "pauseAfterFailures", "timeOfDay")
    ]
    assert result == ["New", None, None, None, "04:00"]
    assert answer["ficheSelection"]["ficheIds"] == ["1900417"]


@pytest.mark.parametrize(
    ("arguments", "given", "code", "sentence"),
    [
        (["create", "-f", "-"], {}, 2, "Invalid automation schedule data: name: is required; scheduleType"),
        (["update", "1", "-f", "-"], {"timeOfDay": None}, 2,
         "Invalid automation schedule update data: timeOfDay: DAILY schedule requires timeOfDay."),
        (["update", "1", "-f", "-"], {"specificAuditConfigs": [7]}, 2,
         "Invalid automation schedule update data: specificAuditConfigs: there is no audit configuration 7."),
        (["update", "1", "-f", "missing.json"], None, 2, "missing.json cannot be read"),
        (["update", "9", "-f", "-"], {"name": "New"}, 1, "Schedule 9 not found."),
        (["show", "9"], None, 1, "Schedule 9 not found."),
        (["pause", "9"], None, 1, "Schedule 9 not found."),
        (["resume", "9"], None, 1, "Schedule 9 not found."),
        (["delete", "9", "--yes"], None, 1, "Schedule 9 not found."),
        (["delete", "1"], None, 2, "Standard input is not a terminal: add --yes to delete schedule 1."),
        (["skip-next", "9"], None, 1, "Schedule 9 not found."),
        (["run-now", "9"], None, 1, "Schedule 9 not found."),
        (["next", "9"], None, 1, "Schedule 9 not found."),
        (["next", "1", "--after", "soon"], None, 2, "--after is not an ISO instant"),
        (["occurrences", "9"], None, 1, "Schedule 9 not found."),
        (["occurrences", "1", "--limit", "0"], None, 2, "Invalid value for '--limit'"),
    ],
)  # fmt: skip
def test_an_error_is_reported_in_one_sentence(
    terminal: Terminal, arguments: list[str], given: object, code: int, sentence: str
) -> None:
    terminal.create()
    ended = terminal.run("schedules", *arguments, "--json", given=json.dumps(given).encode())
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert ended.err.startswith(sentence)


def test_a_paused_schedule_shows_the_reason_and_no_next_occurrence(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    assert terminal.json("schedules", "show", schedule_id)["nextDueAt"] is not None
    paused = terminal.json("schedules", "pause", schedule_id, "--reason", "Holidays")
    assert (paused["isActive"], paused["pausedReason"], paused["nextDueAt"]) == (
        False,
        "Holidays",
        None,
    )
    page = terminal.run("schedules", "show", schedule_id).out
    assert "DAILY, paused, Europe/Paris" in page
    assert "Holidays" in page
    resumed = terminal.json("schedules", "resume", schedule_id)
    assert (resumed["isActive"], resumed["pausedReason"]) == (True, None)
    assert resumed["lastDueAt"] is not None


def test_commands_confirm_what_they_did(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    output = [
        terminal.run("schedules", *arguments).out
        for arguments in (["pause", "1"], ["resume", "1"], ["delete", "1", "-y"])
    ]
    assert schedule_id == "1"
    assert output == [
        "Schedule 1 is paused.\n",
        "Schedule 1 is active.\n",
        "Schedule 1 is deleted.\n",
    ]


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 130, 1)])
def test_deleting_a_schedule_asks_for_confirmation(
    terminal: Terminal, answer: bytes, code: int, left: int
) -> None:
    ended = terminal.run(
        "schedules", "delete", terminal.create(), given=answer, is_interactive=True
    )
    assert (ended.code, "Delete schedule 1, Sales, and all of its 0 runs?" in ended.err) == (
        code,
        True,
    )
    assert len(terminal.json("schedules", "list")["schedules"]) == left


def test_a_deleted_schedule_is_not_listed(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    assert terminal.json("schedules", "delete", schedule_id, "--yes") == {
        "id": schedule_id,
        "deleted": True,
    }
    assert terminal.json("schedules", "list", "--include-inactive") == {"schedules": []}


def test_a_schedule_with_a_pending_run_is_not_deleted(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    terminal.json("schedules", "run-now", schedule_id)
    ended = terminal.run("schedules", "delete", schedule_id, "--yes")
    assert ended.code == 1
    assert "end it by `automation runs cancel 1`" in ended.err


def test_skipped_occurrences_are_marked(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    first, second, third = terminal.json("schedules", "next", schedule_id, "--count", "3")[
        "occurrences"
    ]
    skipped = [terminal.json("schedules", "skip-next", schedule_id) for _ in range(2)]
    assert skipped == [
        {"id": schedule_id, "skipped": first},
        {"id": schedule_id, "skipped": second},
    ]
    assert terminal.json("schedules", "show", schedule_id)["nextDueAt"] == third.replace(
        "Z", ".000Z"
    )
    for arguments in (["show", schedule_id], ["next", schedule_id, "--count", "3"]):
        assert terminal.run("schedules", *arguments).out.count("skipped") == 2
    manual = terminal.create(scheduleType="MANUAL")
    ended = terminal.run("schedules", "skip-next", manual)
    assert (ended.code, ended.err) == (
        1,
        f"Schedule {manual} is MANUAL: it has no next occurrence to skip.\n",
    )


def test_the_last_due_times_are_listed_with_their_outcomes(terminal: Terminal) -> None:
    schedule_id, due = terminal.create(), datetime(2026, 3, 29, 1, tzinfo=UTC)
    terminal.json("schedules", "run-now", schedule_id)
    with terminal.database.transaction() as session:
        session.execute(update(RunRow).values(status="completed"))
        for days, run_id, why in ((0, 1, None), (1, None, "skipped by an operator")):
            due_at = due - timedelta(days=days)
            session.add(
                OccurrenceRow(
                    schedule_id=1, due_at=due_at, run_id=run_id, not_run_because=why, decided_at=due
                )
            )
    decided = terminal.json("schedules", "occurrences", schedule_id)["occurrences"]
    assert decided == [
        {"dueAt": "2026-03-29T01:00:00Z", "runId": "1", "runStatus": "completed", "notRunBecause": None,
         "decidedAt": "2026-03-29T01:00:00Z"},
        {"dueAt": "2026-03-28T01:00:00Z", "runId": None, "runStatus": None,
         "notRunBecause": "skipped by an operator", "decidedAt": "2026-03-29T01:00:00Z"},
    ]  # fmt: skip
    assert (
        terminal.json("schedules", "occurrences", schedule_id, "--limit", "1")["occurrences"]
        == decided[:1]
    )
    page = terminal.run("schedules", "occurrences", schedule_id).out
    assert "Sun 29 Mar 2026 03:00 CEST" in page


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        (
            {},
            [
                "every day at 02:30",
                "details, transcription (normal priority), audits by the automatic configurations",
            ],
        ),
        (
            {"scheduleType": "WEEKLY", "dayOfWeek": 0, "jitterSeconds": 90},
            ["every Sunday at 02:30, up to 90 s later"],
        ),
        (
            {"scheduleType": "MONTHLY", "dayOfMonth": 28},
            ["on day 28 of the month at 02:30 selection"],
        ),
        ({"scheduleType": "MONTHLY", "dayOfMonth": 31}, ["at 02:30; not in a shorter month"]),
        (
            {"scheduleType": "MONTHLY", "dayOfMonth": 31, "shortMonths": "last_day"},
            ["at 02:30; in a shorter month on its last day"],
        ),
        (
            {"scheduleType": "CRON", "cronExpression": "*/15 8-18 * * MON-FRI"},
            ["*/15 8-18 * * MON-FRI"],
        ),
        (
            {"scheduleType": "MANUAL", "runAudits": False, "runTranscription": False},
            ["steps details on errors"],
        ),
        ({"useAutomaticAudits": False}, ["audits by no configuration"]),
        (
            {"continueOnError": False, "retryFailed": True, "maxRetries": 2},
            ["stops after the step, retries 2 times"],
        ),
        (
            {"pauseAfterFailures": 3},
            ["continues, is paused after 3 failed runs in a row, 0 so far"],
        ),
        ({"catchUp": "all", "catchUpLimit": 5}, ["runs all missed due times, at most 5"]),
        ({"catchUp": "latest"}, ["runs the latest missed due time runs 0 in total"]),
        (
            {"overlapPolicy": "BUFFER_ONE", "excludedOn": ["2026-12-25", "2027-01-01"]},
            ["during a run BUFFER_ONE excluded days 2026-12-25, 2027-01-01 runs 0 in total"],
        ),
        ({"scheduleType": "MONTHLY", "dayOfMonth": 29}, ["at 02:30; not in a shorter month"]),
        (
            {"scheduleType": "CRON", "cronExpression": "@daily", "jitterSeconds": 1},
            ["@daily, up to 1 s later"],
        ),
        (
            {"webhookUrl": "https://hooks.test/a", "notifyEmails": ["a@b.test"]},
            ["https://hooks.test/a, a@b.test"],
        ),
    ],
)
def test_show_describes_the_schedule(
    terminal: Terminal, fields: dict[str, object], facts: list[str]
) -> None:
    page = " ".join(terminal.run("schedules", "show", terminal.create(**fields)).out.split())
    for fact in facts:
        assert fact in page


def test_the_last_run_and_the_counters_are_shown(terminal: Terminal) -> None:
    schedule_id = terminal.create()
    ended = {"last_run_status": "failed", "total_runs": 4, "failed_runs": 3}
    set_columns(terminal, last_run_at=datetime(2026, 5, 4, 10, tzinfo=UTC), **ended)
    page = " ".join(terminal.run("schedules", "show", schedule_id).out.split())
    assert "last run 2026-05-04 10:00 UTC (failed) runs 4 in total, 3 failed " in page
    listed = " ".join(terminal.run("schedules", "list").out.splitlines()[1].split())
    assert listed.startswith("1 Sales DAILY ")
    assert listed.endswith(" 2026-05-04 10:00 failed 4")


def test_a_backfill_files_the_missing_days(terminal: Terminal) -> None:
    sales = {"mode": "date_range", "dateRange": "yesterday"}
    schedule_id = terminal.create(ficheSelection=sales, excludedOn=["2026-05-02"])

    def backfill(*options: str) -> list[str]:
        days = ("--from", "2026-05-01", "--to", "2026-05-03")
        output = terminal.run("schedules", "backfill", schedule_id, *days, *options).out
        return [" ".join(line.split()) for line in output.splitlines()]

    excluded = "2026-05-02 is excluded"
    assert backfill("--dry-run") == [
        "day run status",
        "2026-05-01 would be filed",
        excluded,
        "2026-05-03 would be filed",
    ]
    assert backfill()[1:] == ["2026-05-01 1 pending filed", excluded, "2026-05-03 2 pending filed"]
    again = ["2026-05-01 1 pending has its run", excluded, "2026-05-03 2 pending has its run"]
    assert backfill()[1:] == again


def test_a_preview_names_what_a_run_would_leave_out(terminal: Terminal) -> None:
    terminal.export(FICHE_API_BASE_URL="https://crm.example.test", FICHE_API_AUTH_TOKEN="t")
    harness = AuditHarness(terminal.database, FakeClock(datetime(2026, 5, 4, tzinfo=UTC)))
    harness.sell("1", call("11"), call("12"))
    config = harness.configure(1)
    selection = {"mode": "manual", "ficheIds": ["1", "2", "2", "3"], "maxFiches": 2}
    schedule_id = terminal.create(
        ficheSelection=selection | {"maxRecordingsPerFiche": 1}, specificAuditConfigs=[config]
    )
    output = terminal.run("schedules", "preview", schedule_id).out
    assert [" ".join(line.split()) for line in output.splitlines()] == [
        "schedule 1",
        "candidates 4",
        "selected 2: 1, 2",
        "dropped duplicates 1, over_max_fiches 1",
        f"audit configurations {config}",
        "fiche would be reason why",
        "3 dropped over_max_fiches Beyond maxFiches",
        "1 ignored too_many_recordings Too many recordings (2 > 1)",
    ]
    empty = terminal.create(ficheSelection={"mode": "manual"}, useAutomaticAudits=False)
    output = terminal.run("schedules", "preview", empty).out
    assert [" ".join(line.split()) for line in output.splitlines()] == [
        "schedule 2",
        "candidates 0",
        "selected 0 (no_fiches_manual)",
        "dropped none",
        "audit configurations none",
    ]
    many = [str(number) for number in range(21)]
    long = terminal.create(ficheSelection={"mode": "manual", "ficheIds": many})
    output = " ".join(terminal.run("schedules", "preview", long).out.split())
    assert f"selected 21: {', '.join(many[:20])} ... dropped" in output


def test_an_invalid_stored_schedule_can_be_shown_and_corrected(
    terminal: Terminal,
) -> None:
    schedule_id = terminal.create()
    set_columns(terminal, timezone="Mars/Olympus")
    assert terminal.json("schedules", "show", schedule_id)["nextDueAt"] is None
    assert (
        "It is never due: 'Mars/Olympus' is not a known time zone."
        in terminal.run("schedules", "show", "1").out
    )
    assert "never: see `show`" in terminal.run("schedules", "list").out
    assert (
        terminal.run("schedules", "next", schedule_id).err
        == "'Mars/Olympus' is not a known time zone.\n"
    )
    due_at = datetime(2026, 3, 29, 1, tzinfo=UTC)
    with terminal.database.transaction() as session:
        session.add(OccurrenceRow(schedule_id=1, due_at=due_at, decided_at=due_at))
    page = terminal.run("schedules", "occurrences", schedule_id).out
    assert "Sun 29 Mar 2026 01:00 UTC" in page, "UTC, because the zone is not valid"
    corrected = terminal.json(
        "schedules", "update", schedule_id, "-f", "-", given={"timezone": "UTC"}
    )
    assert corrected["nextDueAt"] is not None
