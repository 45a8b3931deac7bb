"""What `save_outcomes` writes over what, on both databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, select

from automation_pipeline.fiches.domain.fiche import (
    DetailsFetched,
    FetchFailed,
    FetchOutcome,
    FicheDetails,
    FicheNotFound,
    Recording,
)
from automation_pipeline.fiches.store import DETAILS_LIVE_FOR, NOT_FOUND, NOT_FOUND_LIVES_FOR, save_outcomes
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.crm import fiche, recording

FIRST = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
LATER = FIRST + timedelta(hours=3)
URL = "https://records.example.test/1.mp3"


def found(fiche_id: str, *recordings: Recording, groupe: str = "TEAM R1") -> DetailsFetched:
    return DetailsFetched(fiche_id, fiche(fiche_id, *recordings, groupe=groupe))


def save(database: Database, *outcomes: FetchOutcome, at: datetime = FIRST) -> None:
    with database.transaction() as session:
        save_outcomes(session, outcomes, at)


def stored(database: Database) -> dict[str, FicheCache]:
    with database.reading() as session:
        return {row.fiche_id: row for row in session.scalars(select(FicheCache))}


def recordings(database: Database) -> dict[tuple[str, str], RecordingRow]:
    query = select(FicheCache.fiche_id, RecordingRow).join(FicheCache, FicheCache.id == RecordingRow.fiche_cache_id)
    with database.reading() as session:
        return {(fiche_id, row.call_id): row for fiche_id, row in session.execute(query).tuples()}


def everything(database: Database) -> list[dict[str, object]]:
    with database.reading() as session:
        return [
            {column.key: getattr(row, column.key) for column in table.__table__.columns}
            for table in (FicheCache, RecordingRow)
            for row in session.scalars(select(table).order_by(table.id))
        ]


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    sent: list[str] = []

    def note(*arguments: object) -> None:
        sent.append(str(arguments[2]))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


def test_details_are_kept_with_their_recordings(database: Database) -> None:
    save(database, found("1", recording("11"), recording("12", url="")))
    row = stored(database)["1"]
    assert (row.groupe, row.agence_nom, row.cle) == ("TEAM R1", "7-TEAMR1", "5f0c77aa91e34b0c8d2e1f6a7b8c9d00")
    assert (row.prospect_nom, row.prospect_prenom) == ("MARTEL", "Odile")
    assert (row.prospect_email, row.prospect_tel) == ("odile.martel@example.test", "0600000001")
    assert (row.details_success, row.details_message) == (True, None)
    assert row.raw_data == fiche("1").payload
    assert (row.fetched_at, row.details_fetched_at, row.expires_at) == (FIRST, FIRST, FIRST + DETAILS_LIVE_FOR)
    kept = recordings(database)
    assert {key: call.recording_url for key, call in kept.items()} == {("1", "11"): URL, ("1", "12"): ""}
    call = kept["1", "11"]
    assert (call.start_time, call.duration_seconds) == (datetime(2026, 2, 3, 9, 14, 5, tzinfo=UTC), 742)
    assert (call.direction, call.from_number, call.to_number, call.answered) == (
        "out", "33100000001", "33600000001", True,
    )  # fmt: skip


def test_newer_details_replace_older_ones(database: Database) -> None:
    save(database, found("1", recording("11")))
    save(database, DetailsFetched("1", replace(fiche("1", groupe="TEAM R2"), prospect_email=None)), at=LATER)
    row = stored(database)["1"]
    assert (row.groupe, row.prospect_email, row.details_fetched_at) == ("TEAM R2", None, LATER)


def test_details_do_not_touch_what_they_do_not_know(database: Database) -> None:
    save(database, found("1"))
    with database.transaction() as session:
        row = session.scalars(select(FicheCache)).one()
        row.sales_date, row.last_revalidated_at = "2026-02-03", FIRST
    save(database, found("1"), at=LATER)
    row = stored(database)["1"]
    assert (row.sales_date, row.last_revalidated_at) == ("2026-02-03", FIRST)


def test_a_fiche_that_was_never_known_leaves_a_marker_that_soon_expires(database: Database) -> None:
    save(database, FicheNotFound("1"))
    row = stored(database)["1"]
    assert (row.details_success, row.details_message, row.raw_data) == (False, NOT_FOUND, {})
    assert (row.fetched_at, row.expires_at) == (FIRST, FIRST + NOT_FOUND_LIVES_FOR)
    assert (row.details_fetched_at, row.groupe) == (None, None)


def test_a_not_found_marker_leaves_what_was_known(database: Database) -> None:
    save(database, found("1", recording("11")))
    save(database, FicheNotFound("1"), at=LATER)
    row = stored(database)["1"]
    assert (row.details_success, row.details_message) == (False, NOT_FOUND)
    assert (row.groupe, row.raw_data, row.details_fetched_at) == ("TEAM R1", fiche("1").payload, FIRST)
    assert (row.fetched_at, row.expires_at) == (LATER, LATER + NOT_FOUND_LIVES_FOR)
    assert set(recordings(database)) == {("1", "11")}


def test_details_take_a_not_found_marker_away(database: Database) -> None:
    save(database, FicheNotFound("1"))
    save(database, found("1"), at=LATER)
    row = stored(database)["1"]
    assert (row.details_success, row.details_message, row.details_fetched_at) == (True, None, LATER)
    assert row.expires_at == LATER + DETAILS_LIVE_FOR


@pytest.mark.parametrize("transient", [True, False])
def test_a_failed_fetch_changes_nothing(database: Database, transient: bool) -> None:
    save(database, found("1", recording("11")))
    before = everything(database)
    save(database, FetchFailed("1", "busy", transient), FetchFailed("2", "busy", transient), at=LATER)
    assert everything(database) == before


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


def test_a_call_that_the_crm_no_longer_lists_is_kept(database: Database) -> None:
    save(database, found("1", recording("11"), recording("12")))
    save(database, found("1", recording("12")), at=LATER)
    assert set(recordings(database)) == {("1", "11"), ("1", "12")}


def test_one_call_id_of_two_fiches_is_two_calls(database: Database) -> None:
    save(database, found("1", recording("11")), found("2", recording("11", url="")))
    assert {key: row.recording_url for key, row in recordings(database).items()} == {
        ("1", "11"): URL,
        ("2", "11"): "",
    }


def test_saving_again_is_saving_once(database: Database) -> None:
    outcomes = (found("1", recording("11"), recording("12")), FicheNotFound("2"), FetchFailed("3", "busy", True))
    save(database, *outcomes)
    before = everything(database)
    save(database, *outcomes)
    assert everything(database) == before


def test_nothing_to_save_is_no_write(database: Database) -> None:
    with statements(database) as sent:
        save(database)
    assert not [statement for statement in sent if statement.startswith(("INSERT", "UPDATE", "DELETE"))]


def test_the_number_of_statements_does_not_follow_the_number_of_fiches(database: Database) -> None:
    with statements(database) as few:
        save(database, *mixed(range(5)))
    with statements(database) as many:
        save(database, *mixed(range(100, 600)))
    assert len(many) == len(few)
    assert len([statement for statement in many if statement.startswith(("INSERT", "SELECT"))]) == 4
    assert len(stored(database)) == 404
    assert len(recordings(database)) == 606


def mixed(numbers: range) -> Iterator[FetchOutcome]:
    """Of five fiches three are found with two calls each, one is missing and one fails."""
    for number in numbers:
        fiche_id = str(number)
        match number % 5:
            case 0:
                yield FicheNotFound(fiche_id)
            case 1:
                yield FetchFailed(fiche_id, "busy", transient=True)
            case _:
                yield found(fiche_id, recording(f"{number}01"), recording(f"{number}02"))


def test_what_one_fiche_holds_does_not_leak_into_another(database: Database) -> None:
    details: FicheDetails = fiche("2", groupe="TEAM R2")
    save(database, found("1"), DetailsFetched("2", details))
    assert {key: row.groupe for key, row in stored(database).items()} == {"1": "TEAM R1", "2": "TEAM R2"}
