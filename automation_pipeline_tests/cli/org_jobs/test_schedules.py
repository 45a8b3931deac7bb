"""Tests of `automation org-jobs schedules`."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.org_jobs.models.jobs import attempt_failed, attempt_succeeded
from automation_pipeline.org_jobs.tables import BatchRow
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.org_jobs.commands import CALL, UNKNOWN_ID, OrgJobsCommands
from automation_pipeline_tests.cli.terminal import during_pauses

BY_FLAGS = (
    "--name", "Nightly", "--cron", "30 4 * * *", "--timezone", "Europe/Paris", "--type", "SERVER_RESTART",
    "--window", "02:00-06:00", "--window-policy", "filter", "--cutoff", "15", "--overlap", "buffer_one",
    "--misfire", "skip", "--grace", "60", "--jitter", "30", "--retries", "3", "--backoff-ms", "1000",
    "--backoff", "exponential", "--priority", "2", "--start", "2026-01-01T00:00:00+01:00",
    "--end", "2127-01-01T00:00:00Z", "--exclude", "2126-12-25,2126-12-26", "--exclude", "2126-05-01",
    "--auto-pause-after", "4", "--skip-if-offline", "--description", "Every night",
)  # fmt: skip


def test_a_schedule_can_be_created_with_flags(org_jobs: OrgJobsCommands) -> None:
    server = org_jobs.server()
    created = org_jobs.json("schedules", "create", *BY_FLAGS, "--server", server)
    fields = {
        "name": "Nightly", "cronExpression": "30 4 * * *", "timezone": "Europe/Paris", "jobType": "SERVER_RESTART",
        "serverInstanceId": server, "executionWindowStart": "02:00", "executionWindowEnd": "06:00",
        "windowPolicy": "FILTER", "latestStartCutoffMin": 15, "overlapPolicy": "BUFFER_ONE", "misfirePolicy": "SKIP",
        "misfireGraceS": 60, "jitterS": 30, "priority": 2, "startAt": "2025-12-31T23:00:00.000Z",
        "endAt": "2127-01-01T00:00:00.000Z", "excludedOn": ["2126-05-01", "2126-12-25", "2126-12-26"],
        "autoPauseAfter": 4, "skipIfOffline": True, "description": "Every night", "enabled": True,
        "retryPolicy": {"maxRetries": 3, "backoffMs": 1000, "backoffType": "exponential", "jitter": False},
        "orgId": "acme", "state": "ACTIVE", "createdBy": "cli:ada",
    }  # fmt: skip
    assert {name: created[name] for name in fields} == fields
    assert org_jobs.json("schedules", "show", created["id"]) == created


def test_flags_override_the_file_when_creating_a_schedule(org_jobs: OrgJobsCommands) -> None:
    created = org_jobs.json(
        "schedules", "create", "--file", "-", "--name", "Other", "--disabled", given=CALL
    )
    assert (created["name"], created["jobType"], created["state"]) == (
        "Other",
        "HTTPS_CALL",
        "PAUSED",
    )
    path = org_jobs.terminal.folder / "call.json"
    path.write_text(json.dumps(CALL))
    assert org_jobs.json("schedules", "create", "-f", str(path))["name"] == CALL["name"]


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
def test_every_error_names_its_field(
    org_jobs: OrgJobsCommands, flags: list[str], fault: str
) -> None:
    given = json.dumps(CALL).encode()
    assert fault in org_jobs.refused(
        "schedules", "create", "--file", "-", *flags, code=2, given=given
    )
    assert org_jobs.json("schedules", "list")["schedules"] == []


def test_a_forbidden_call_url_is_rejected_before_saving(org_jobs: OrgJobsCommands) -> None:
    stored = org_jobs.schedule()
    inside, listed = '{"url": "http://10.0.0.5:3000/"}', '{"url": "http://localhost:3000/"}'
    org_jobs.terminal.export(ORG_JOBS_HTTPS_ALLOWED_ORIGINS="http://localhost:3000")
    for arguments in (
        ("schedules", "create", "--name", "Other", "--cron", "0 2 * * *", "--type", "HTTPS_CALL"),
        ("schedules", "update", stored),
        ("schedules", "run-now", stored),
        ("create", "--type", "HTTPS_CALL"),
    ):
        message = org_jobs.refused(*arguments, "--payload", inside, code=2)
        assert (
            "payload.url: url must begin with https:// unless ORG_JOBS_HTTPS_ALLOWED_ORIGINS lists"
            in message
        ), arguments
        assert org_jobs.json(*arguments, "--payload", listed), arguments


def test_schedules_can_be_listed_and_filtered(org_jobs: OrgJobsCommands) -> None:
    org_jobs.org("globex")
    server = org_jobs.server()
    restart = org_jobs.schedule(
        "--org", "acme", "--server", server, jobType="SERVER_RESTART", payload={}, name="Été"
    )
    paused = org_jobs.schedule("--org", "acme", "--disabled")
    other = org_jobs.schedule("--org", "globex")

    def listed(*options: str) -> set[str]:
        return {one["id"] for one in org_jobs.json("schedules", "list", *options)["schedules"]}

    assert listed() == {restart, paused, other}
    assert listed("--org", "acme") == {restart, paused}
    assert listed("--state", "paused") == {paused}
    assert (
        listed("--type", "SERVER_RESTART")
        == listed("--server", server)
        == listed("--query", "ét")
        == {restart}
    )
    assert org_jobs.json("schedules", "list", "--limit", "2")["more"] is True
    result = org_jobs.printed("schedules", "list", "--limit", "2")
    assert result.endswith("There are more rows: --offset 2 shows the next page.")
    assert "Warm [cache]" in result


def test_a_schedule_shows_its_main_fields(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule(
        "--window",
        "22:00-06:00",
        "--retries",
        "3",
        "--backoff",
        "exponential",
        description="Keeps [it] warm",
    )
    shown = org_jobs.printed("schedules", "show", schedule_id)
    for arguments in (
        f"schedule {schedule_id} Warm [cache]", "Keeps [it] warm", "organisation acme", "state ACTIVE",
        "due 0 2 * * *, Europe/Paris", "22:00 to 06:00; jobs due outside wait for it", "02:00 CE",
        'HTTPS_CALL {"url": "https://example.com/warm"', "3 times, after 2 s, then double",
        "a due time is skipped while the previous job runs", "paused after 10 failures in a row", "0 jobs, 0 failed",
        "by cli:ada",
    ):  # fmt: skip
        assert arguments in shown
    org_jobs.json(
        "schedules",
        "pause",
        schedule_id,
        "--reason",
        "Disk [full]",
        "--until",
        "2127-01-01T00:00:00Z",
    )
    shown = org_jobs.printed("schedules", "show", schedule_id)
    assert "state PAUSED" in shown
    assert "paused because Disk [full]; it is resumed 2127-01-01 00:00 UTC" in shown
    assert "next never" in shown
    assert shown.endswith(f"Resume it: `automation org-jobs schedules resume {schedule_id}`.")


MAY = datetime(2026, 5, 1, 8, 30, 15, tzinfo=UTC)
DAY = timedelta(days=1)
SHORT = {"job_type": "HTTPS_CALL", "payload": {}, "created_at": MAY, "updated_at": MAY}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {
                "name": "Nightly [1]", "description": "Line 1\nline 2", "payload": {"url": "https://example.com"},
                "state": "PAUSED", "enabled": False, "pause_reason": "Disk [full]", "paused_until": MAY + 9 * DAY,
                "jitter_s": 30, "start_at": MAY, "end_at": MAY + 90 * DAY, "timezone": "Europe/Paris",
                "excluded_on": ["2026-05-05", "2026-05-06"], "execution_window_start": "22:00",
                "execution_window_end": "06:00", "window_policy": "FILTER", "latest_start_cutoff_min": 1,
                "retry_policy": {"maxRetries": 1, "backoffMs": 500, "backoffType": "exponential"},
                "overlap_policy": "ALLOW_ALL", "misfire_policy": "FIRE_ALL", "misfire_grace_s": 60,
                "skip_if_offline": True, "auto_pause_after": 1, "run_count": 2, "failure_count": 3,
                "consecutive_failures": 1, "last_run_at": MAY + DAY, "last_run_job_id": 7, "priority": 3,
                "last_dispatch_status": "dispatched", "last_job_status": "failed", "updated_at": MAY + 2 * DAY,
                "version": 4, "created_by": "user:9",
            },
            ("schedule {id} Nightly [1] description Line 1 line 2 organisation acme state PAUSED, disabled "
            "paused because Disk [full]; it is resumed 2026-05-10 08:30 UTC due 0 2 * * *, Europe/Paris, "
            "up to 30 s later, from 2026-05-01 08:30 UTC, until 2026-07-30 08:30 UTC, not on 2026-05-05, 2026-05-06 "
            "window 22:00 to 06:00, no job starts in its last 1 minute; jobs due outside are skipped next never "
            'job HTTPS_CALL {{"url": "https://example.com"}} priority 3 retries once, after 0.5 s, then double '
            "policies jobs run concurrently; after more than 60 s the newest ten missed due times are run; a due time "
            "is skipped while the agent is offline; paused after 1 failure in a row "
            "last job job 7, 2026-05-02 08:30 UTC: failed counters 2 jobs, 3 failed, 1 in a row "
            "created 2026-05-01 08:30 UTC by user:9 changed 2026-05-03 08:30 UTC, version 4 "
            "Resume it: `automation org-jobs schedules resume {id}`. See what failed: `automation org-jobs show 7`."),
        ),
        (
            {
                "name": "Other", "next_run_at": MAY + 40 * DAY, "next_scheduled_for": MAY + 40 * DAY - DAY / 8,
                "skip_next_run": True, "auto_pause_after": 0, "retry_policy": {"maxRetries": 0},
                "last_run_at": MAY, "last_dispatch_status": "dispatched",
            },
            ("schedule {id} Other organisation acme state ACTIVE due 0 2 * * *, UTC "
            "next Wed 10 Jun 2026 08:30 UTC, for 2026-06-10 05:30 UTC skipped the next due time job HTTPS_CALL "
            "priority 5 retries never policies a due time is skipped while the previous job runs; "
            "after more than 3600 s the newest missed due time is run last job 2026-05-01 08:30 UTC: success "
            "counters 0 jobs, 0 failed created 2026-05-01 08:30 UTC by user:1 "
            "Keep the next due time: `automation org-jobs schedules keep-next {id}`."),
        ),
        (
            {
                "name": "Broken", "state": "INVALID_CRON", "timezone": "Gone/City", "skip_next_run": True,
                "skip_next_run_reason": "Party", "consecutive_failures": 2, "failure_count": 2, "run_count": 1,
            },
            ("schedule {id} Broken organisation acme state INVALID_CRON due 0 2 * * *, Gone/City next never "
            "skipped the next due time: Party job HTTPS_CALL priority 5 retries 2 times, after 2 s "
            "policies a due time is skipped while the previous job runs; after more than 3600 s the newest missed "
            "due time is run; paused after 10 failures in a row counters 1 job, 2 failed, 2 in a row "
            "created 2026-05-01 08:30 UTC by user:1 Correct its cron or its time zone: "
            "`automation org-jobs schedules update {id} --cron ... --timezone ...`. "
            "Keep the next due time: `automation org-jobs schedules keep-next {id}`."),
        ),
        (
            {
                "name": "Paused", "state": "PAUSED", "execution_window_start": "01:00",
                "execution_window_end": "02:00",
            },
            ("schedule {id} Paused organisation acme state PAUSED paused because no reason given due 0 2 * * *, UTC "
            "window 01:00 to 02:00; jobs due outside wait for it next never job HTTPS_CALL priority 5 "
            "retries 2 times, after 2 s policies a due time is skipped while the previous job runs; after more than "
            "3600 s the newest missed due time is run; paused after 10 failures in a row counters 0 jobs, 0 failed "
            "created 2026-05-01 08:30 UTC by user:1 Resume it: `automation org-jobs schedules resume {id}`."),
        ),
    ],
)  # fmt: skip
def test_a_stored_schedule_is_shown_in_full(
    org_jobs: OrgJobsCommands, columns: dict[str, object], expected: str
) -> None:
    org_jobs.data.schedule("acme", id=UNKNOWN_ID, **(SHORT | columns))
    assert org_jobs.printed("schedules", "show", UNKNOWN_ID) == expected.format(id=UNKNOWN_ID)


def test_the_list_shows_the_state_and_next_due_time_of_schedules(org_jobs: OrgJobsCommands) -> None:
    data = org_jobs.data
    due = {"next_run_at": MAY, "next_scheduled_for": MAY}
    data.schedule("acme", id="a", name="One", **(SHORT | due | {"skip_next_run": True}))
    data.schedule(
        "acme", id="b", name="Two", **(SHORT | {"state": "PAUSED", "skip_next_run": True})
    )
    data.schedule(
        "acme", id="c", name="Three", **(SHORT | due), consecutive_failures=1, enabled=True
    )
    assert org_jobs.printed("schedules", "list") == (
        "id organisation name type cron state next (UTC) runs "
        "a acme One HTTPS_CALL 0 2 * * * UTC ACTIVE 2026-05-01 08:30, skipped 0 jobs, 0 failed "
        "b acme Two HTTPS_CALL 0 2 * * * UTC PAUSED 0 jobs, 0 failed "
        "c acme Three HTTPS_CALL 0 2 * * * UTC ACTIVE 2026-05-01 08:30 0 jobs, 0 failed, 1 in a row"
    )


def test_fires_show_their_job_or_the_reason_why_there_is_none(org_jobs: OrgJobsCommands) -> None:
    data, decided = org_jobs.data, MAY + timedelta(minutes=1)
    data.schedule("acme", id=UNKNOWN_ID, **(SHORT | {"timezone": "Europe/Paris"}))
    data.fire(UNKNOWN_ID, MAY, outcome="FAILED", error="No\njob", fired_at=decided)
    skipped = {"outcome": "SKIPPED", "skip_reason": "operator", "note": "Party"}
    data.fire(UNKNOWN_ID, MAY + DAY, fired_at=decided, **skipped)
    fire_id = data.fire(UNKNOWN_ID, MAY + 2 * DAY, fired_at=decided)
    data.job("acme", fire_id=fire_id)
    assert org_jobs.printed("schedules", "fires", UNKNOWN_ID) == (
        "due, Europe/Paris decided (UTC) by outcome job why "
        "Sun 03 May 2026 10:30 CEST 2026-05-01 08:31 CRON DISPATCHED 1 pending "
        "Sat 02 May 2026 10:30 CEST 2026-05-01 08:31 CRON SKIPPED operator: Party "
        "Fri 01 May 2026 10:30 CEST 2026-05-01 08:31 CRON FAILED No job"
    )
    data.set_schedule(UNKNOWN_ID, timezone="Gone/City")
    assert "Fri 01 May 2026 08:30 UTC" in org_jobs.printed("schedules", "fires", UNKNOWN_ID)


def test_a_schedule_shows_its_last_five_fires_with_outcome_and_reason(
    org_jobs: OrgJobsCommands,
) -> None:
    schedule_id, data = org_jobs.schedule(), org_jobs.data
    start = data.now.replace(year=2026, month=5, day=1, hour=0, minute=0, second=0, microsecond=0)
    for day in range(1, 7):
        skipped = {"outcome": "SKIPPED", "skip_reason": "overlap", "note": "One is [still] at work"}
        data.fire(schedule_id, start.replace(day=day), **(skipped if day == 6 else {}))
    shown = org_jobs.printed("schedules", "show", schedule_id)
    assert shown.count(" DISPATCHED") == 4
    assert "SKIPPED overlap: One is [still] at work" in shown
    assert "01 May" not in shown
    fires = org_jobs.json("schedules", "fires", schedule_id, "--limit", "4")
    assert ([one["outcome"] for one in fires["fires"]][:2], fires["more"]) == (
        ["SKIPPED", "DISPATCHED"],
        True,
    )
    result = org_jobs.printed("schedules", "fires", schedule_id, "--limit", "4")
    assert result.endswith(
        f"There are more rows: --after {fires['fires'][-1]['id']} shows the next page."
    )
    rest = org_jobs.json("schedules", "fires", schedule_id, "--after", fires["fires"][-1]["id"])[
        "fires"
    ]
    assert [one["scheduledFor"] for one in rest] == [iso(start.replace(day=2)), iso(start)]


def test_a_fire_shows_the_outcome_of_its_job(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    org_jobs.run_job(
        org_jobs.json("schedules", "run-now", schedule_id)["job_id"],
        attempt_failed("Gone", "NOT_FOUND"),
    )
    assert "MANUAL DISPATCHED 1 failed" in org_jobs.printed("schedules", "fires", schedule_id)
    shown = org_jobs.printed("schedules", "show", schedule_id)
    assert "1 job, 1 failed, 1 in a row" in shown
    assert shown.endswith("See what failed: `automation org-jobs show 1`.")


def test_a_schedule_can_be_updated_with_flags_or_a_file(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule("--retries", "3", "--backoff-ms", "1000", description="Old")
    changed = org_jobs.json(
        "schedules", "update", schedule_id, "--cron", "30 3 * * *", "--retries", "4"
    )
    assert (changed["cronExpression"], changed["version"]) == ("30 3 * * *", 2)
    assert changed["retryPolicy"] | {"maxRetries": 4, "backoffMs": 1000} == changed["retryPolicy"]
    cleared = org_jobs.json(
        "schedules", "update", schedule_id, "--file", "-", given={"description": None}
    )
    assert cleared["description"] is None
    assert org_jobs.json("schedules", "show", schedule_id)["name"] == CALL["name"]


def test_a_schedule_is_deleted_after_a_confirmation(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    message = org_jobs.refused("schedules", "delete", schedule_id, code=2)
    assert (
        message == f"Standard input is not a terminal: add --yes to delete schedule {schedule_id}."
    )
    refused = org_jobs.run("schedules", "delete", schedule_id, given=b"n\n", is_interactive=True)
    assert refused.code == 130
    assert f"Delete schedule {schedule_id}, Warm [cache]?" in refused.err
    assert org_jobs.json("schedules", "delete", schedule_id, "--yes") == {
        "id": schedule_id,
        "deleted": True,
    }
    assert org_jobs.json("schedules", "list")["schedules"] == []


def test_the_log_shows_who_changed_a_schedule(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    org_jobs.json("schedules", "update", schedule_id, "--name", "New [name]")
    org_jobs.json("schedules", "pause", schedule_id, "--reason", "Holidays")
    log = org_jobs.json("schedules", "log", schedule_id)["log"]
    assert (log[0]["actor"], log[0]["action"], log[0]["reason"]) == ("cli:ada", "pause", "Holidays")
    result = org_jobs.printed("schedules", "log", schedule_id)
    assert 'name: "Warm [cache]" -> "New [name]"' in result
    assert org_jobs.json("audit-log", "--entity", "schedule", "--id", schedule_id)["log"] == log
    assert "Holidays" in org_jobs.printed("audit-log", "--org", "acme", "--limit", "1")


def test_a_schedule_can_be_paused_and_resumed(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    paused = org_jobs.json(
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
    result = org_jobs.printed("schedules", "resume", schedule_id)
    assert result.startswith(f"Schedule {schedule_id}, Warm [cache], is ACTIVE, due ")
    result = org_jobs.printed("schedules", "pause", schedule_id, "--until", "2127-01-01T00:00:00Z")
    assert result == f"Schedule {schedule_id}, Warm [cache], is paused until 2127-01-01 00:00 UTC."
    assert org_jobs.json("schedules", "resume", schedule_id)["pausedUntil"] is None


CALENDAR_START, CALENDAR_END = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"


@pytest.mark.parametrize(
    ("arguments", "option", "fault"),
    [
        (("pause", "--until", CALENDAR_END), "--until", CALENDAR_END),
        (("next", "--after", CALENDAR_START), "--after", CALENDAR_START),
        (("next", "--after", CALENDAR_END), "--after", CALENDAR_END),
        (
            ("backfill", "--from", CALENDAR_START, "--until", "2026-05-03T00:00:00Z"),
            "--from",
            CALENDAR_START,
        ),
        (
            ("backfill", "--from", "2026-05-03T00:00:00Z", "--until", CALENDAR_END),
            "--until",
            CALENDAR_END,
        ),
    ],
)
def test_an_instant_outside_the_calendar_is_rejected(
    org_jobs: OrgJobsCommands, arguments: tuple[str, ...], option: str, fault: str
) -> None:
    message = org_jobs.refused(
        "schedules", arguments[0], org_jobs.schedule(), *arguments[1:], code=2
    )
    assert message == f"{option} lies outside the calendar: {fault}."


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_instants_at_the_calendar_limits_cause_no_traceback(
    org_jobs: OrgJobsCommands, instant: str
) -> None:
    schedule_id = org_jobs.schedule(timezone="Pacific/Kiritimati")
    for arguments in (
        ("next", schedule_id, "--after", instant),
        ("pause", schedule_id, "--until", instant),
        ("next", schedule_id),
        ("show", schedule_id),
        ("backfill", schedule_id, "--from", instant, "--until", instant, "--dry-run"),
    ):
        ended = org_jobs.run("schedules", *arguments)
        assert ended.code in {0, 1, 2}
        assert "Traceback" not in ended.err


def test_the_next_due_time_can_be_skipped_and_restored(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    skipping = org_jobs.json("schedules", "skip-next", schedule_id, "--reason", "Tournament")
    assert (skipping["skipNextRun"], skipping["skipNextRunReason"]) == (True, "Tournament")
    shown = org_jobs.printed("schedules", "show", schedule_id)
    assert "skipped the next due time: Tournament" in shown
    assert f"keep-next {schedule_id}" in shown
    assert "It is skipped" in org_jobs.printed("schedules", "next", schedule_id)
    assert ", is due " in org_jobs.printed("schedules", "keep-next", schedule_id)
    assert org_jobs.json("schedules", "keep-next", schedule_id)["skipNextRun"] is False
    assert ", skips " in org_jobs.printed("schedules", "skip-next", schedule_id)


def test_a_manual_run_returns_immediately(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule("--disabled")
    document = org_jobs.json(
        "schedules", "run-now", schedule_id, "--payload", '{"url": "https://example.com/other"}'
    )
    assert (document["schedule_id"], document["status"]) == (schedule_id, "pending")
    job = org_jobs.json("show", document["job_id"])
    assert (job["scheduleId"], job["payload"]["url"]) == (schedule_id, "https://example.com/other")
    org_jobs.run_job(document["job_id"], attempt_succeeded())
    result = org_jobs.printed("schedules", "run-now", schedule_id)
    assert result == "Job 2 is requested: `automation org-jobs watch 2` follows it."


def test_a_manual_run_outside_the_execution_window_requires_force(
    org_jobs: OrgJobsCommands,
) -> None:
    now = org_jobs.data.now
    window = f"{(now.hour + 3) % 24:02}:00-{(now.hour + 4) % 24:02}:00"
    schedule_id = org_jobs.schedule("--window", window, timezone="UTC")
    assert org_jobs.refused("schedules", "run-now", schedule_id)
    assert (
        org_jobs.json("schedules", "run-now", schedule_id, "--ignore-window")["status"] == "pending"
    )


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        (attempt_succeeded({"status": 200}), 0, "success"),
        (attempt_failed("No [host]", "NOT_FOUND"), 1, "failed"),
    ],
)
def test_waiting_for_a_manual_run_prints_its_outcome(
    org_jobs: OrgJobsCommands, monkeypatch: pytest.MonkeyPatch, end: object, code: int, status: str
) -> None:
    schedule_id = org_jobs.schedule()
    during_pauses(monkeypatch, lambda: org_jobs.run_job("1", end))
    document = org_jobs.json("schedules", "run-now", schedule_id, "--wait", code=code)
    assert (document["job_id"], document["status"], document["job"]["id"]) == ("1", status, "1")
    during_pauses(monkeypatch, lambda: org_jobs.run_job("2", end))
    result = org_jobs.printed("schedules", "run-now", schedule_id, "--wait", code=code)
    assert f"Job 2, HTTPS_CALL: {status}" in result
    assert ("NOT_FOUND: No [host]" in result) is (code == 1)


def test_a_past_period_can_be_backfilled(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    period = ("--from", "2026-05-01T00:00:00Z", "--until", "2026-05-03T23:59:00Z")
    planned = org_jobs.json("schedules", "backfill", schedule_id, *period, "--dry-run")
    assert (planned["id"], planned["total"], len(planned["times"])) == (None, 3, 3)
    assert "3 jobs would be created. This is a dry run" in org_jobs.printed(
        "schedules", "backfill", schedule_id, *period, "--dry-run"
    )
    assert org_jobs.json("list")["jobs"] == []
    created = org_jobs.json("schedules", "backfill", schedule_id, *period)
    assert (created["status"], created["total"], created["pending"]) == ("running", 3, 3)
    again = org_jobs.printed(
        "schedules", "backfill", schedule_id, *period, "--behaviour", "failed", "--dry-run"
    )
    assert "skipped: its job has not ended" in again
    fault = org_jobs.refused(
        "schedules", "backfill", schedule_id, *period[:2], "--until", "2026-04-01T00:00:00Z", code=2
    )
    assert fault == "Invalid backfill: until: must not be earlier than from."
    assert [one["id"] for one in org_jobs.json("backfills", "list")["backfills"]] == [created["id"]]
    assert len(org_jobs.json("list", "--backfill", created["id"])["jobs"]) == 3
    assert f"automation org-jobs backfills cancel {created['id']}" in org_jobs.printed(
        "backfills", "show", created["id"]
    )
    assert "3 = 3 pending" in org_jobs.printed("backfills", "list", "--org", "acme")
    cancelled = org_jobs.json("backfills", "cancel", created["id"])
    assert (cancelled["status"], cancelled["cancelled"]) == ("cancelled", 3)


def test_backfills_show_the_status_of_their_jobs(org_jobs: OrgJobsCommands) -> None:
    data = org_jobs.data
    schedule_id = data.schedule("acme", id=UNKNOWN_ID, **SHORT)
    columns = {
        "org_id": "acme",
        "schedule_id": schedule_id,
        "type": "backfill",
        "created_by": "user:1",
    }
    columns |= {"from_at": MAY, "until_at": MAY + DAY, "created_at": MAY}
    with data.database.transaction() as session:
        session.add(BatchRow(id=1, status="running", behaviour="failed", total=3, **columns))
        ended = {"status": "completed", "behaviour": "none", "total": 0, "finished_at": MAY + DAY}
        session.add(BatchRow(id=2, **columns, **ended))
    for status in ("pending", "running", "success"):
        data.set_job(data.job("acme", batch_id=1), status=status)
    assert org_jobs.printed("backfills", "show", "1") == (
        f"backfill 1 organisation acme schedule {UNKNOWN_ID} status running "
        "period 2026-05-01 08:30 to 2026-05-02 08:30 UTC, repeated: failed jobs 3 = 1 pending + 1 running + 1 success "
        "created 2026-05-01 08:30 UTC by user:1 See its jobs: `automation org-jobs list --backfill 1`. "
        "Stop it: `automation org-jobs backfills cancel 1`."
    )
    assert org_jobs.printed("backfills", "show", "2") == (
        f"backfill 2 organisation acme schedule {UNKNOWN_ID} status completed "
        "period 2026-05-01 08:30 to 2026-05-02 08:30 UTC, repeated: none jobs 0 "
        "created 2026-05-01 08:30 UTC by user:1 ended 2026-05-02 08:30 UTC"
    )
    assert org_jobs.printed("backfills", "list") == (
        "id organisation schedule status period (UTC) created (UTC) jobs "
        f"2 acme {UNKNOWN_ID} completed 2026-05-01 08:30 to 2026-05-02 08:30 2026-05-01 08:30 0 "
        f"1 acme {UNKNOWN_ID} running 2026-05-01 08:30 to 2026-05-02 08:30 2026-05-01 08:30 "
        "3 = 1 pending + 1 running + 1 success"
    )


def nightly(org_jobs: OrgJobsCommands, *options: str) -> str:
    return org_jobs.schedule("--cron", "30 2 * * *", *options)


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
    org_jobs: OrgJobsCommands, after: str, occurrences: list[str], note: str
) -> None:
    schedule_id = nightly(org_jobs)
    document = org_jobs.json("schedules", "next", schedule_id, "--after", after, "--count", "2")
    assert document["occurrences"] == occurrences
    assert document["runs"][0]["note"].startswith(note)
    assert document["timezone"] == "Europe/Paris"
    result = org_jobs.printed("schedules", "next", schedule_id, "--after", after, "--count", "2")
    assert note in result
    assert "(Europe/Paris)." in result
    assert "(Europe/Paris).\n\n" in org_jobs.run("schedules", "next", schedule_id).out


def test_a_paused_schedule_has_no_upcoming_times_and_prints_why(org_jobs: OrgJobsCommands) -> None:
    schedule_id = nightly(org_jobs, "--disabled")
    document = org_jobs.json("schedules", "next", schedule_id)
    assert document["occurrences"] == []
    assert document["note"] in org_jobs.printed("schedules", "next", schedule_id)


def test_an_unsaved_schedule_can_be_previewed(org_jobs: OrgJobsCommands) -> None:
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
    document = org_jobs.json("schedules", "preview", "--file", "-", *options, given=CALL)
    assert document["occurrences"] == ["2026-05-04T20:00:00Z"]
    assert "it waits until 22:00" in document["runs"][0]["note"]
    assert org_jobs.json("schedules", "list")["schedules"] == []
