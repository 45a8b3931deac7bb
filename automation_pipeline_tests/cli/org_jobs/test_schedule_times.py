"""When schedules are due: in their zone and in UTC, with what moves their times."""

import pytest

from automation_pipeline_tests.cli.org_jobs.counter import CALL, Counter


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
def test_coming_times_go_over_clock_changes_and_say_so(
    counter: Counter, after: str, occurrences: list[str], note: str
) -> None:
    schedule_id = nightly(counter)
    told = counter.json("schedules", "next", schedule_id, "--after", after, "--count", "2")
    assert told["occurrences"] == occurrences
    assert told["runs"][0]["note"].startswith(note)
    assert told["timezone"] == "Europe/Paris"
    said = counter.said("schedules", "next", schedule_id, "--after", after, "--count", "2")
    assert note in said
    assert "(Europe/Paris)." in said


def test_a_paused_one_has_no_coming_times_and_says_why(counter: Counter) -> None:
    schedule_id = nightly(counter, "--disabled")
    told = counter.json("schedules", "next", schedule_id)
    assert told["occurrences"] == []
    assert told["note"] in counter.said("schedules", "next", schedule_id)


def test_what_is_not_stored_is_previewed(counter: Counter) -> None:
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
    told = counter.json("schedules", "preview", "--file", "-", *options, given=CALL)
    assert told["occurrences"] == ["2026-05-04T20:00:00Z"]
    assert "it waits until 22:00" in told["runs"][0]["note"]
    assert counter.json("schedules", "list")["schedules"] == []
