"""Schedules of organisations from the command line."""

import json

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.org_jobs.models.jobs import attempt_failed, attempt_succeeded
from automation_pipeline_tests.cli.org_jobs.counter import CALL, Counter
from automation_pipeline_tests.cli.terminal import during_pauses
from automation_pipeline_tests.tables import every_case

BY_FLAGS = (
    "--name", "Nightly", "--cron", "30 4 * * *", "--timezone", "Europe/Paris", "--type", "SERVER_RESTART",
    "--window", "02:00-06:00", "--window-policy", "filter", "--cutoff", "15", "--overlap", "buffer_one",
    "--misfire", "skip", "--grace", "60", "--jitter", "30", "--retries", "3", "--backoff-ms", "1000",
    "--backoff", "exponential", "--priority", "2", "--start", "2026-01-01T00:00:00+01:00",
    "--end", "2127-01-01T00:00:00Z", "--exclude", "2126-12-25,2126-12-26", "--exclude", "2126-05-01",
    "--auto-pause-after", "4", "--skip-if-offline", "--description", "Every night",
)  # fmt: skip


def test_a_schedule_can_be_created_with_flags(counter: Counter) -> None:
    server = counter.server()
    made = counter.json("schedules", "create", *BY_FLAGS, "--server", server)
    wanted = {
        "name": "Nightly", "cronExpression": "30 4 * * *", "timezone": "Europe/Paris", "jobType": "SERVER_RESTART",
        "serverInstanceId": server, "executionWindowStart": "02:00", "executionWindowEnd": "06:00",
        "windowPolicy": "FILTER", "latestStartCutoffMin": 15, "overlapPolicy": "BUFFER_ONE", "misfirePolicy": "SKIP",
        "misfireGraceS": 60, "jitterS": 30, "priority": 2, "startAt": "2025-12-31T23:00:00.000Z",
        "endAt": "2127-01-01T00:00:00.000Z", "excludedOn": ["2126-05-01", "2126-12-25", "2126-12-26"],
        "autoPauseAfter": 4, "skipIfOffline": True, "description": "Every night", "enabled": True,
        "retryPolicy": {"maxRetries": 3, "backoffMs": 1000, "backoffType": "exponential", "jitter": False},
        "orgId": "acme", "state": "ACTIVE", "createdBy": "cli:ada",
    }  # fmt: skip
    assert {name: made[name] for name in wanted} == wanted
    assert counter.json("schedules", "show", made["id"]) == made


def test_flags_override_the_file_when_creating_a_schedule(counter: Counter) -> None:
    made = counter.json(
        "schedules", "create", "--file", "-", "--name", "Other", "--disabled", given=CALL
    )
    assert (made["name"], made["jobType"], made["state"]) == ("Other", "HTTPS_CALL", "PAUSED")
    path = counter.terminal.folder / "call.json"
    path.write_text(json.dumps(CALL))
    assert counter.json("schedules", "create", "-f", str(path))["name"] == CALL["name"]


@every_case(
    ("flags", "fault"),
    [
        (["--cron", "0 25 * * *"], "cronExpression: "),
        (["--timezone", "Mars/Base"], "timezone: "),
        (["--window", "06:00-06:00"], "executionWindowEnd: must differ"),
        (["--window", "6-25:00"], "executionWindowStart: must be a time of day"),
        (["--retries", "11"], "retryPolicy.maxRetries: must be at most 10"),
        (["--type", "SLEEP"], "jobType: "),
        (["--payload", '{"url": "https://example.com", "colour": "red"}'], "payload.colour: "),
        (["--exclude", "yesterday"], "excludedOn.0: must be a day"),
        (["--server", "99"], "serverInstanceId: "),
    ],
)
def test_every_error_names_its_field(counter: Counter, flags: list[str], fault: str) -> None:
    given = json.dumps(CALL).encode()
    assert fault in counter.refused(
        "schedules", "create", "--file", "-", *flags, code=2, given=given
    )
    assert counter.json("schedules", "list")["schedules"] == []


def test_a_forbidden_call_url_is_rejected_before_saving(counter: Counter) -> None:
    stored = counter.schedule()
    inside, listed = '{"url": "http://10.0.0.5:3000/"}', '{"url": "http://localhost:3000/"}'
    counter.terminal.export(ORG_JOBS_HTTPS_ALLOWED_ORIGINS="http://localhost:3000")
    for words in (
        ("schedules", "create", "--name", "Other", "--cron", "0 2 * * *", "--type", "HTTPS_CALL"),
        ("schedules", "update", stored),
        ("schedules", "run-now", stored),
        ("create", "--type", "HTTPS_CALL"),
    ):
        message = counter.refused(*words, "--payload", inside, code=2)
        assert (
            "payload.url: url must begin with https:// unless ORG_JOBS_HTTPS_ALLOWED_ORIGINS lists"
            in message
        ), words
        assert counter.json(*words, "--payload", listed), words


def test_schedules_can_be_listed_and_filtered(counter: Counter) -> None:
    counter.org("globex")
    server = counter.server()
    restart = counter.schedule(
        "--org", "acme", "--server", server, jobType="SERVER_RESTART", payload={}, name="Été"
    )
    paused = counter.schedule("--org", "acme", "--disabled")
    other = counter.schedule("--org", "globex")

    def listed(*options: str) -> set[str]:
        return {one["id"] for one in counter.json("schedules", "list", *options)["schedules"]}

    assert listed() == {restart, paused, other}
    assert listed("--org", "acme") == {restart, paused}
    assert listed("--state", "paused") == {paused}
    assert (
        listed("--type", "SERVER_RESTART")
        == listed("--server", server)
        == listed("--query", "ét")
        == {restart}
    )
    assert counter.json("schedules", "list", "--limit", "2")["more"] is True
    result = counter.printed("schedules", "list", "--limit", "2")
    assert result.endswith("There are more rows: --offset 2 shows the next page.")
    assert "Warm [cache]" in result


def test_a_schedule_shows_its_main_fields(counter: Counter) -> None:
    schedule_id = counter.schedule(
        "--window",
        "22:00-06:00",
        "--retries",
        "3",
        "--backoff",
        "exponential",
        description="Keeps [it] warm",
    )
    shown = counter.printed("schedules", "show", schedule_id)
    for words in (
        f"schedule {schedule_id} Warm [cache]", "Keeps [it] warm", "organisation acme", "state ACTIVE",
        "due 0 2 * * *, Europe/Paris", "22:00 to 06:00; jobs due outside wait for it", "02:00 CE",
        'HTTPS_CALL {"url": "https://example.com/warm"', "3 times, after 2 s, then double",
        "a due time is skipped while the previous job runs", "paused after 10 failures in a row", "0 jobs, 0 failed",
        "by cli:ada",
    ):  # fmt: skip
        assert words in shown
    counter.json(
        "schedules",
        "pause",
        schedule_id,
        "--reason",
        "Disk [full]",
        "--until",
        "2127-01-01T00:00:00Z",
    )
    shown = counter.printed("schedules", "show", schedule_id)
    assert "state PAUSED" in shown
    assert "paused because Disk [full]; it is resumed 2127-01-01 00:00 UTC" in shown
    assert "next never" in shown
    assert shown.endswith(f"Resume it: `automation org-jobs schedules resume {schedule_id}`.")


def test_a_schedule_shows_its_last_five_fires_with_outcome_and_reason(counter: Counter) -> None:
    schedule_id, bench = counter.schedule(), counter.bench
    start = bench.now.replace(year=2026, month=5, day=1, hour=0, minute=0, second=0, microsecond=0)
    for day in range(1, 7):
        skipped = {"outcome": "SKIPPED", "skip_reason": "overlap", "note": "One is [still] at work"}
        bench.fire(schedule_id, start.replace(day=day), **(skipped if day == 6 else {}))
    shown = counter.printed("schedules", "show", schedule_id)
    assert shown.count(" DISPATCHED") == 4
    assert "SKIPPED overlap: One is [still] at work" in shown
    assert "01 May" not in shown
    fires = counter.json("schedules", "fires", schedule_id, "--limit", "4")
    assert ([one["outcome"] for one in fires["fires"]][:2], fires["more"]) == (
        ["SKIPPED", "DISPATCHED"],
        True,
    )
    result = counter.printed("schedules", "fires", schedule_id, "--limit", "4")
    assert result.endswith(
        f"There are more rows: --after {fires['fires'][-1]['id']} shows the next page."
    )
    rest = counter.json("schedules", "fires", schedule_id, "--after", fires["fires"][-1]["id"])[
        "fires"
    ]
    assert [one["scheduledFor"] for one in rest] == [iso(start.replace(day=2)), iso(start)]


def test_a_fire_shows_the_outcome_of_its_job(counter: Counter) -> None:
    schedule_id = counter.schedule()
    counter.do(
        counter.json("schedules", "run-now", schedule_id)["job_id"],
        attempt_failed("Gone", "NOT_FOUND"),
    )
    assert "MANUAL DISPATCHED 1 failed" in counter.printed("schedules", "fires", schedule_id)
    shown = counter.printed("schedules", "show", schedule_id)
    assert "1 job, 1 failed, 1 in a row" in shown
    assert shown.endswith("See what failed: `automation org-jobs show 1`.")


def test_a_schedule_can_be_updated_with_flags_or_a_file(counter: Counter) -> None:
    schedule_id = counter.schedule("--retries", "3", "--backoff-ms", "1000", description="Old")
    changed = counter.json(
        "schedules", "update", schedule_id, "--cron", "30 3 * * *", "--retries", "4"
    )
    assert (changed["cronExpression"], changed["version"]) == ("30 3 * * *", 2)
    assert changed["retryPolicy"] | {"maxRetries": 4, "backoffMs": 1000} == changed["retryPolicy"]
    cleared = counter.json(
        "schedules", "update", schedule_id, "--file", "-", given={"description": None}
    )
    assert cleared["description"] is None
    assert counter.json("schedules", "show", schedule_id)["name"] == CALL["name"]


def test_a_schedule_is_deleted_after_a_confirmation(counter: Counter) -> None:
    schedule_id = counter.schedule()
    message = counter.refused("schedules", "delete", schedule_id, code=2)
    assert message == f"Standard input is no terminal: add --yes to delete schedule {schedule_id}."
    refused = counter.run("schedules", "delete", schedule_id, given=b"n\n", is_interactive=True)
    assert refused.code == 130
    assert f"Delete schedule {schedule_id}, Warm [cache]?" in refused.err
    assert counter.json("schedules", "delete", schedule_id, "--yes") == {
        "id": schedule_id,
        "deleted": True,
    }
    assert counter.json("schedules", "list")["schedules"] == []


def test_the_log_shows_who_changed_a_schedule(counter: Counter) -> None:
    schedule_id = counter.schedule()
    counter.json("schedules", "update", schedule_id, "--name", "New [name]")
    counter.json("schedules", "pause", schedule_id, "--reason", "Holidays")
    log = counter.json("schedules", "log", schedule_id)["log"]
    assert (log[0]["actor"], log[0]["action"], log[0]["reason"]) == ("cli:ada", "pause", "Holidays")
    result = counter.printed("schedules", "log", schedule_id)
    assert 'name: "Warm [cache]" -> "New [name]"' in result
    assert counter.json("audit-log", "--entity", "schedule", "--id", schedule_id)["log"] == log
    assert "Holidays" in counter.printed("audit-log", "--org", "acme", "--limit", "1")


def test_a_schedule_can_be_paused_and_resumed(counter: Counter) -> None:
    schedule_id = counter.schedule()
    paused = counter.json(
        "schedules",
        "pause",
        schedule_id,
        "--reason",
        "Disk full",
        "--until",
        "2127-01-01T01:00:00+01:00",
    )
    assert (paused["state"], paused["pauseReason"]) == ("PAUSED", "Disk full")
    assert (paused["pausedUntil"], paused["nextRunAt"]) == ("2127-01-01T00:00:00.000Z", None)
    result = counter.printed("schedules", "resume", schedule_id)
    assert result.startswith(f"Schedule {schedule_id}, Warm [cache], is ACTIVE, due ")
    result = counter.printed("schedules", "pause", schedule_id, "--until", "2127-01-01T00:00:00Z")
    assert result == f"Schedule {schedule_id}, Warm [cache], is paused until 2127-01-01 00:00 UTC."
    assert counter.json("schedules", "resume", schedule_id)["pausedUntil"] is None


BEFORE_ALL, AFTER_ALL = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"


@pytest.mark.parametrize(
    ("deed", "option", "fault"),
    [
        (("pause", "--until", AFTER_ALL), "--until", AFTER_ALL),
        (("next", "--after", BEFORE_ALL), "--after", BEFORE_ALL),
        (("next", "--after", AFTER_ALL), "--after", AFTER_ALL),
        (
            ("backfill", "--from", BEFORE_ALL, "--until", "2026-05-03T00:00:00Z"),
            "--from",
            BEFORE_ALL,
        ),
        (
            ("backfill", "--from", "2026-05-03T00:00:00Z", "--until", AFTER_ALL),
            "--until",
            AFTER_ALL,
        ),
    ],
)
def test_an_instant_outside_the_calendar_is_rejected(
    counter: Counter, deed: tuple[str, ...], option: str, fault: str
) -> None:
    message = counter.refused("schedules", deed[0], counter.schedule(), *deed[1:], code=2)
    assert message == f"{option} lies outside the calendar: {fault}."


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_instants_at_the_calendar_limits_cause_no_traceback(counter: Counter, instant: str) -> None:
    schedule_id = counter.schedule(timezone="Pacific/Kiritimati")
    for deed in (
        ("next", schedule_id, "--after", instant),
        ("pause", schedule_id, "--until", instant),
        ("next", schedule_id),
        ("show", schedule_id),
        ("backfill", schedule_id, "--from", instant, "--until", instant, "--dry-run"),
    ):
        ended = counter.run("schedules", *deed)
        assert ended.code in {0, 1, 2}
        assert "Traceback" not in ended.err


def test_the_next_due_time_can_be_skipped_and_restored(counter: Counter) -> None:
    schedule_id = counter.schedule()
    skipping = counter.json("schedules", "skip-next", schedule_id, "--reason", "Tournament")
    assert (skipping["skipNextRun"], skipping["skipNextRunReason"]) == (True, "Tournament")
    shown = counter.printed("schedules", "show", schedule_id)
    assert "skipped the next due time: Tournament" in shown
    assert f"keep-next {schedule_id}" in shown
    assert "It is left out" in counter.printed("schedules", "next", schedule_id)
    assert ", is due " in counter.printed("schedules", "keep-next", schedule_id)
    assert counter.json("schedules", "keep-next", schedule_id)["skipNextRun"] is False
    assert ", leaves out " in counter.printed("schedules", "skip-next", schedule_id)


def test_a_manual_run_returns_immediately(counter: Counter) -> None:
    schedule_id = counter.schedule("--disabled")
    document = counter.json(
        "schedules", "run-now", schedule_id, "--payload", '{"url": "https://example.com/other"}'
    )
    assert (document["schedule_id"], document["status"]) == (schedule_id, "pending")
    job = counter.json("show", document["job_id"])
    assert (job["scheduleId"], job["payload"]["url"]) == (schedule_id, "https://example.com/other")
    counter.do(document["job_id"], attempt_succeeded())
    result = counter.printed("schedules", "run-now", schedule_id)
    assert result == "Job 2 is asked for: `automation org-jobs watch 2` follows it."


def test_a_manual_run_outside_the_execution_window_requires_force(counter: Counter) -> None:
    now = counter.bench.now
    window = f"{(now.hour + 3) % 24:02}:00-{(now.hour + 4) % 24:02}:00"
    schedule_id = counter.schedule("--window", window, timezone="UTC")
    assert counter.refused("schedules", "run-now", schedule_id)
    assert (
        counter.json("schedules", "run-now", schedule_id, "--ignore-window")["status"] == "pending"
    )


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        (attempt_succeeded({"status": 200}), 0, "success"),
        (attempt_failed("No [host]", "NOT_FOUND"), 1, "failed"),
    ],
)
def test_waiting_for_a_manual_run_prints_its_outcome(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, end: object, code: int, status: str
) -> None:
    schedule_id = counter.schedule()
    during_pauses(monkeypatch, lambda: counter.do("1", end))
    document = counter.json("schedules", "run-now", schedule_id, "--wait", code=code)
    assert (document["job_id"], document["status"], document["job"]["id"]) == ("1", status, "1")
    during_pauses(monkeypatch, lambda: counter.do("2", end))
    result = counter.printed("schedules", "run-now", schedule_id, "--wait", code=code)
    assert f"Job 2, HTTPS_CALL: {status}" in result
    assert ("NOT_FOUND: No [host]" in result) is (code == 1)


def test_a_past_period_can_be_backfilled(counter: Counter) -> None:
    schedule_id = counter.schedule()
    period = ("--from", "2026-05-01T00:00:00Z", "--until", "2026-05-03T23:59:00Z")
    planned = counter.json("schedules", "backfill", schedule_id, *period, "--dry-run")
    assert (planned["id"], planned["total"], len(planned["times"])) == (None, 3, 3)
    assert "3 jobs would be created. This is a dry run" in counter.printed(
        "schedules", "backfill", schedule_id, *period, "--dry-run"
    )
    assert counter.json("list")["jobs"] == []
    made = counter.json("schedules", "backfill", schedule_id, *period)
    assert (made["status"], made["total"], made["pending"]) == ("running", 3, 3)
    again = counter.printed(
        "schedules", "backfill", schedule_id, *period, "--behaviour", "failed", "--dry-run"
    )
    assert "skipped: its job has not ended" in again
    fault = counter.refused(
        "schedules", "backfill", schedule_id, *period[:2], "--until", "2026-04-01T00:00:00Z", code=2
    )
    assert fault == "Invalid backfill: until: must not be earlier than from."
    assert [one["id"] for one in counter.json("backfills", "list")["backfills"]] == [made["id"]]
    assert len(counter.json("list", "--backfill", made["id"])["jobs"]) == 3
    assert f"automation org-jobs backfills cancel {made['id']}" in counter.printed(
        "backfills", "show", made["id"]
    )
    assert "3 = 3 pending" in counter.printed("backfills", "list", "--org", "acme")
    cancelled = counter.json("backfills", "cancel", made["id"])
    assert (cancelled["status"], cancelled["cancelled"]) == ("cancelled", 3)


def nightly(counter: Counter, *options: str) -> str:
    return counter.schedule("--cron", "30 2 * * *", *options)


@pytest.mark.parametrize(
    ("after", "occurrences", "note"),
    [
        (
            "2027-03-27T12:00:00Z",
            ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"],
            "The clock goes forward",
        ),
        (
            "2027-10-30T12:00:00+02:00",
            ["2027-10-31T01:30:00Z", "2027-11-01T01:30:00Z"],
            "The clock goes back",
        ),
    ],
)
def test_upcoming_times_mark_daylight_saving_changes(
    counter: Counter, after: str, occurrences: list[str], note: str
) -> None:
    schedule_id = nightly(counter)
    document = counter.json("schedules", "next", schedule_id, "--after", after, "--count", "2")
    assert document["occurrences"] == occurrences
    assert document["runs"][0]["note"].startswith(note)
    assert document["timezone"] == "Europe/Paris"
    result = counter.printed("schedules", "next", schedule_id, "--after", after, "--count", "2")
    assert note in result
    assert "(Europe/Paris)." in result


def test_a_paused_schedule_has_no_upcoming_times_and_prints_why(counter: Counter) -> None:
    schedule_id = nightly(counter, "--disabled")
    document = counter.json("schedules", "next", schedule_id)
    assert document["occurrences"] == []
    assert document["note"] in counter.printed("schedules", "next", schedule_id)


def test_an_unsaved_schedule_can_be_previewed(counter: Counter) -> None:
    options = (
        "--cron",
        "0 12 * * *",
        "--window",
        "22:00-06:00",
        "--after",
        "2026-05-04T00:00:00Z",
        "--count",
        "1",
    )
    document = counter.json("schedules", "preview", "--file", "-", *options, given=CALL)
    assert document["occurrences"] == ["2026-05-04T20:00:00Z"]
    assert "it waits until 22:00" in document["runs"][0]["note"]
    assert counter.json("schedules", "list")["schedules"] == []
