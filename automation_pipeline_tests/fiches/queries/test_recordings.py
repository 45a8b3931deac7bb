"""What is written over a recording, on both databases."""

from dataclasses import replace
from datetime import timedelta

import pytest

from automation_pipeline.fiches.queries.details import save_recordings
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.crm import recording
from automation_pipeline_tests.fiches.queries.mirror import (
    LATER,
    URL,
    found,
    recordings,
    save,
    vanished,
)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (URL, "", URL),
        ("", URL, URL),
        (URL, "https://records.example.test/2.mp3", "https://records.example.test/2.mp3"),
        ("", "", ""),
    ],
)
def test_an_audio_address_is_replaced_by_another_but_never_by_none(
    database: Database, before: str, after: str, kept: str
) -> None:
    save(database, found("1", recording("11", url=before)))
    save(database, found("1", replace(recording("11", url=after), duration_seconds=9)), at=LATER)
    [row] = recordings(database).values()
    assert (row.recording_url, row.duration_seconds) == (kept, 9)


@pytest.mark.parametrize(
    ("before", "after", "kept"), [("a", None, "a"), (None, "b", "b"), ("a", "b", "b")]
)
def test_the_uuid_is_replaced_by_another_but_never_by_none(
    database: Database, before: str | None, after: str | None, kept: str | None
) -> None:
    for uuid in (before, after):
        save(database, found("1", replace(recording("11"), uuid=uuid)))
    [row] = recordings(database).values()
    assert row.uuid == kept


def test_a_call_that_the_details_no_longer_name_is_marked_until_it_comes_back(
    database: Database,
) -> None:
    save(database, found("1", recording("11"), recording("12")), found("2", recording("11")))
    save(database, found("1", recording("12")), at=LATER)
    assert vanished(database) == {("1", "11"): LATER, ("1", "12"): None, ("2", "11"): None}
    save(database, found("1"), at=LATER + timedelta(hours=1))
    assert vanished(database)["1", "11"] == LATER
    save(database, found("1", recording("11", url="")), at=LATER + timedelta(hours=2))
    assert vanished(database) == {
        ("1", "11"): None,
        ("1", "12"): LATER + timedelta(hours=1),
        ("2", "11"): None,
    }
    assert recordings(database)["1", "11"].recording_url == URL


def test_recordings_saved_alone_are_refreshed_and_never_marked(database: Database) -> None:
    """As the sales list does it."""
    save(database, found("1", recording("11"), recording("12")), found("2", recording("21")))
    save(database, found("2"), at=LATER)
    with database.transaction() as session:
        save_recordings(
            session, {"1": [recording("11", url="")], "2": [recording("21"), recording("22")]}
        )
        save_recordings(session, {})
    assert vanished(database) == dict.fromkeys([("1", "11"), ("1", "12"), ("2", "21"), ("2", "22")])
    assert recordings(database)["1", "11"].recording_url == URL


def test_one_call_id_of_two_fiches_is_two_calls(database: Database) -> None:
    save(database, found("1", recording("11")), found("2", recording("11", url="")))
    assert {key: row.recording_url for key, row in recordings(database).items()} == {
        ("1", "11"): URL,
        ("2", "11"): "",
    }
