"""What is done about schedules: paused, resumed, run, left out once, done again; --wait says by its
end how it went."""

import pytest

from automation_pipeline.org_jobs.models.jobs import attempt_failed, attempt_succeeded
from automation_pipeline_tests.cli.org_jobs.counter import Counter
from automation_pipeline_tests.cli.terminal import meanwhile


def test_a_schedule_is_paused_and_resumed(counter: Counter) -> None:
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
    said = counter.said("schedules", "resume", schedule_id)
    assert said.startswith(f"Schedule {schedule_id}, Warm [cache], is ACTIVE, due ")
    said = counter.said("schedules", "pause", schedule_id, "--until", "2127-01-01T00:00:00Z")
    assert said == f"Schedule {schedule_id}, Warm [cache], is paused until 2127-01-01 00:00 UTC."
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
def test_an_instant_that_no_calendar_reaches_is_refused(
    counter: Counter, deed: tuple[str, ...], option: str, fault: str
) -> None:
    said = counter.refused("schedules", deed[0], counter.schedule(), *deed[1:], code=2)
    assert said == f"{option} lies outside the calendar: {fault}."


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_the_ends_of_the_calendar_are_told_of_without_a_traceback(
    counter: Counter, instant: str
) -> None:
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


def test_the_next_time_is_left_out_and_kept_after_all(counter: Counter) -> None:
    schedule_id = counter.schedule()
    skipping = counter.json("schedules", "skip-next", schedule_id, "--reason", "Tournament")
    assert (skipping["skipNextRun"], skipping["skipNextRunReason"]) == (True, "Tournament")
    shown = counter.said("schedules", "show", schedule_id)
    assert "left out the next time: Tournament" in shown
    assert f"keep-next {schedule_id}" in shown
    assert "It is left out" in counter.said("schedules", "next", schedule_id)
    assert ", is due " in counter.said("schedules", "keep-next", schedule_id)
    assert counter.json("schedules", "keep-next", schedule_id)["skipNextRun"] is False
    assert ", leaves out " in counter.said("schedules", "skip-next", schedule_id)


def test_a_run_by_hand_answers_at_once(counter: Counter) -> None:
    schedule_id = counter.schedule("--disabled")
    told = counter.json(
        "schedules", "run-now", schedule_id, "--payload", '{"url": "https://example.com/other"}'
    )
    assert (told["schedule_id"], told["status"]) == (schedule_id, "pending")
    job = counter.json("show", told["job_id"])
    assert (job["scheduleId"], job["payload"]["url"]) == (schedule_id, "https://example.com/other")
    counter.do(told["job_id"], attempt_succeeded())
    said = counter.said("schedules", "run-now", schedule_id)
    assert said == "Job 2 is asked for: `automation org-jobs watch 2` follows it."


def test_outside_of_its_window_it_must_be_forced(counter: Counter) -> None:
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
def test_a_run_that_is_waited_for_says_how_it_ended(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, end: object, code: int, status: str
) -> None:
    schedule_id = counter.schedule()
    meanwhile(monkeypatch, lambda: counter.do("1", end))
    told = counter.json("schedules", "run-now", schedule_id, "--wait", code=code)
    assert (told["job_id"], told["status"], told["job"]["id"]) == ("1", status, "1")
    meanwhile(monkeypatch, lambda: counter.do("2", end))
    said = counter.said("schedules", "run-now", schedule_id, "--wait", code=code)
    assert f"Job 2, HTTPS_CALL: {status}" in said
    assert ("NOT_FOUND: No [host]" in said) is (code == 1)


def test_a_past_period_is_done_again(counter: Counter) -> None:
    schedule_id = counter.schedule()
    period = ("--from", "2026-05-01T00:00:00Z", "--until", "2026-05-03T23:59:00Z")
    planned = counter.json("schedules", "backfill", schedule_id, *period, "--dry-run")
    assert (planned["id"], planned["total"], len(planned["times"])) == (None, 3, 3)
    assert "3 jobs would be made. Nothing is done yet" in counter.said(
        "schedules", "backfill", schedule_id, *period, "--dry-run"
    )
    assert counter.json("list")["jobs"] == []
    made = counter.json("schedules", "backfill", schedule_id, *period)
    assert (made["status"], made["total"], made["pending"]) == ("running", 3, 3)
    again = counter.said(
        "schedules", "backfill", schedule_id, *period, "--behaviour", "failed", "--dry-run"
    )
    assert "left out: its job is not over" in again
    fault = counter.refused(
        "schedules", "backfill", schedule_id, *period[:2], "--until", "2026-04-01T00:00:00Z", code=2
    )
    assert fault == "Invalid backfill: until: must not be earlier than from."
    assert [one["id"] for one in counter.json("backfills", "list")["backfills"]] == [made["id"]]
    assert len(counter.json("list", "--backfill", made["id"])["jobs"]) == 3
    assert f"automation org-jobs backfills cancel {made['id']}" in counter.said(
        "backfills", "show", made["id"]
    )
    assert "3 = 3 pending" in counter.said("backfills", "list", "--org", "acme")
    cancelled = counter.json("backfills", "cancel", made["id"])
    assert (cancelled["status"], cancelled["cancelled"]) == ("cancelled", 3)
