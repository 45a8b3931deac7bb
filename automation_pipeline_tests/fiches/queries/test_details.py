"""Queries that store and read fiche details and their recordings."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, select

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
)
from automation_pipeline.fiches.queries.fiches import fiche_document
from automation_pipeline.fiches.queries.mirror import (
    DETAILS_LIVE_FOR,
    NOT_FOUND,
    NOT_FOUND_LIVES_FOR,
    check_mirrored,
    known_since,
    save_outcomes,
    save_recordings,
)
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import fiche, recording
from automation_pipeline_tests.fiches.queries.mirror import (
    FIRST,
    LATER,
    SECTIONS,
    URL,
    day,
    found,
    read_back,
    recordings,
    save,
    save_rounds,
    statements,
    vanished,
)
from automation_pipeline_tests.processes import run_in_processes


def stored(database: Database) -> dict[str, FicheCacheRow]:
    with database.reading() as session:
        return {row.fiche_id: row for row in session.scalars(select(FicheCacheRow))}


def all_rows(database: Database) -> list[dict[str, object]]:
    with database.reading() as session:
        return [
            dict(row)
            for table in (FicheCacheRow.__table__, CallRecordingRow.__table__, *SECTIONS)
            for row in session.execute(select(table).order_by(*table.primary_key)).mappings()
        ]


def test_details_are_stored_with_their_recordings(database: Database) -> None:
    save(database, found("1", recording("11"), recording("12", url="")))
    row = stored(database)["1"]
    assert (row.groupe, row.agence_nom, row.cle) == (
        "TEAM R1",
        "7-TEAMR1",
        "5f0c77aa91e34b0c8d2e1f6a7b8c9d00",
    )
    assert (row.prospect_nom, row.prospect_prenom) == ("MARTEL", "Odile")
    assert (row.prospect_email, row.prospect_tel) == ("odile.martel@example.test", "0600000001")
    assert (row.details_success, row.details_message) == (True, None)
    assert row.raw_data == {}
    assert (row.sales_date, row.not_found_until) == ("2026-02-03", None)
    assert (row.fetched_at, row.details_fetched_at, row.expires_at) == (
        FIRST,
        FIRST,
        FIRST + DETAILS_LIVE_FOR,
    )
    stored_calls = recordings(database)
    assert {key: call.recording_url for key, call in stored_calls.items()} == {
        ("1", "11"): URL,
        ("1", "12"): "",
    }
    call = stored_calls["1", "11"]
    assert (call.start_time, call.duration_seconds) == (
        datetime(2026, 2, 3, 9, 14, 5, tzinfo=UTC),
        742,
    )
    assert (call.recording_date, call.recording_time, call.uuid) == ("03/02/2026", "10:14", None)
    assert (call.direction, call.from_number, call.to_number, call.answered) == (
        "out", "33100000001", "33600000001", True,
    )  # fmt: skip


def test_only_a_stored_fiche_counts_as_mirrored(database: Database) -> None:
    save(database, found("1"))
    with database.reading() as session:
        check_mirrored(session, "1")
        with pytest.raises(NotFoundError, match="Fiche 2 not found"):
            check_mirrored(session, "2")


def test_newer_details_replace_older_ones(database: Database) -> None:
    save(database, found("1", recording("11")))
    newer = replace(fiche("1", groupe="TEAM R2", cle=None), prospect=None, rest={"avis": 1})
    save(database, DetailsFetched("1", newer), at=LATER)
    row = stored(database)["1"]
    assert (row.groupe, row.prospect_email, row.cle, row.details_fetched_at) == (
        "TEAM R2",
        None,
        None,
        LATER,
    )
    assert row.raw_data == {"avis": 1}


@pytest.mark.parametrize(
    ("before", "expected", "kept"),
    [
        (None, "03/02/2026 10:12", "2026-02-03"),
        (None, "2026-02-03T23:30:00Z", "2026-02-04"),
        (None, "hier", None),
        ("2026-01-31", "03/02/2026 10:12", "2026-01-31"),
    ],
)
def test_sales_date_is_derived_from_the_first_details_only(
    database: Database, before: str | None, expected: str, kept: str | None
) -> None:
    save(database, FicheNotFound("1"))
    with database.transaction() as session:
        session.scalars(select(FicheCacheRow)).one().sales_date = before
    for _ in range(2):
        save(database, found("1", date_insertion=expected), at=LATER)
        assert stored(database)["1"].sales_date == kept
    save(database, found("1", date_insertion="04/05/2026 10:12"), at=LATER)
    assert stored(database)["1"].sales_date == (kept or "2026-05-04")


def test_saving_details_does_not_update_last_revalidated_at(database: Database) -> None:
    save(database, found("1"))
    with database.transaction() as session:
        session.scalars(select(FicheCacheRow)).one().last_revalidated_at = FIRST
    save(database, found("1"), at=LATER)
    assert stored(database)["1"].last_revalidated_at == FIRST


def test_a_not_found_fiche_stores_a_marker_with_a_short_expiry(database: Database) -> None:
    save(database, FicheNotFound("1"))
    row = stored(database)["1"]
    assert (row.details_success, row.details_message, row.raw_data) == (False, NOT_FOUND, {})
    assert (row.not_found_until, row.expires_at) == (
        FIRST + NOT_FOUND_LIVES_FOR,
        FIRST + NOT_FOUND_LIVES_FOR,
    )
    assert (row.fetched_at, row.details_fetched_at, row.groupe, row.sales_date) == (
        FIRST,
        None,
        None,
        None,
    )


def test_a_not_found_marker_preserves_stored_details(database: Database) -> None:
    save(database, DetailsFetched("1", replace(fiche("1", recording("11")), rest={"avis": 1})))
    before, sections = vars(stored(database)["1"]), read_back(database)
    save(database, FicheNotFound("1"), at=LATER)
    row = stored(database)["1"]
    assert (row.details_success, row.details_message) == (False, NOT_FOUND)
    assert row.not_found_until == LATER + NOT_FOUND_LIVES_FOR
    marker = {"details_success", "details_message", "not_found_until", "_sa_instance_state"}
    assert {name for name, value in vars(row).items() if value != before[name]} == marker
    assert read_back(database) == sections
    with database.reading() as session:
        assert fiche_document(session, "1")["state"] == "not found"
    assert [call.vanished_at for call in recordings(database).values()] == [None]


def test_details_clear_a_not_found_marker(database: Database) -> None:
    save(database, FicheNotFound("1"))
    save(database, found("1"), at=LATER)
    row = stored(database)["1"]
    assert (row.details_success, row.details_message, row.details_fetched_at) == (True, None, LATER)
    assert (row.expires_at, row.not_found_until) == (LATER + DETAILS_LIVE_FOR, None)


@pytest.mark.parametrize("transient", [True, False])
def test_a_failed_fetch_changes_nothing(database: Database, transient: bool) -> None:
    save(database, found("1", recording("11")))
    before = all_rows(database)
    save(
        database, FetchFailed("1", "busy", transient), FetchFailed("2", "busy", transient), at=LATER
    )
    assert all_rows(database) == before


def test_saving_the_same_outcomes_twice_is_idempotent(database: Database) -> None:
    outcomes = (
        found("1", recording("11"), recording("12")),
        FicheNotFound("2"),
        FetchFailed("3", "busy", True),
    )
    save(database, *outcomes)
    before = all_rows(database)
    save(database, *outcomes)
    assert all_rows(database) == before


def test_saving_no_outcomes_writes_nothing(database: Database) -> None:
    with statements(database) as sent:
        save(database)
    assert not [
        statement for statement in sent if statement.startswith(("INSERT", "UPDATE", "DELETE"))
    ]


def test_the_last_of_several_outcomes_for_a_fiche_is_saved(database: Database) -> None:
    save(
        database,
        FicheNotFound("1"),
        found("1", groupe="TEAM R1"),
        found("1", groupe="TEAM R2"),
        FicheNotFound("2"),
    )
    rows = stored(database)
    assert (rows["1"].groupe, rows["1"].details_success, rows["2"].details_success) == (
        "TEAM R2",
        True,
        False,
    )


def test_the_number_of_statements_is_independent_of_the_number_of_fiches(
    database: Database,
) -> None:
    """The statements write the fiches, read their keys and stored sections, insert into each of 18 tables,
    and read and write the recordings. Sections are deleted only if rows of them are stored."""
    whole = [*day(200), FicheNotFound("1"), FetchFailed("2", "busy", transient=True)]
    with statements(database) as many:
        save(database, *whole)
    full = max(whole[:200], key=lambda outcome: len(filled_sections(outcome)))
    with statements(database) as few:
        save(database, full, FicheNotFound("1"))
    assert len(filled_sections(full)) >= 10
    # On SQLite, BEGIN is a statement too.
    assert len(many) <= 22 + 1
    assert len(few) <= len(many) + 18
    with statements(database) as again:
        save(database, *whole)
    assert len(again) == len(many) + 18


def filled_sections(outcome: FetchOutcome) -> list[str]:
    assert isinstance(outcome, DetailsFetched)
    return [name for name, value in vars(outcome.details).items() if value]


def test_concurrent_saves_in_opposite_order_store_the_same_rows_as_one_save(
    database: Database, database_url: str
) -> None:
    save(database, *day(100))
    expected = read_back(database), set(recordings(database))
    with database.transaction() as session:
        session.execute(delete(FicheCacheRow))
    run_in_processes(save_rounds, (database_url, 100, False, 2, 5), (database_url, 100, True, 2, 5))
    assert (read_back(database), set(recordings(database))) == expected
    assert set(vanished(database).values()) == {None}


def test_concurrent_saves_with_different_missing_fiches_do_not_deadlock(
    database: Database, database_url: str
) -> None:
    run_in_processes(save_rounds, (database_url, 100, False, 0, 5), (database_url, 100, True, 1, 5))
    rows = stored(database)
    assert len(rows) == 100
    assert all(row.groupe is not None for row in rows.values())
    save(database, *day(100))
    assert all(row.details_success for row in stored(database).values())


def test_each_fiche_keeps_its_own_details(database: Database) -> None:
    save(database, found("1"), found("2", groupe="TEAM R2"))
    assert {key: row.groupe for key, row in stored(database).items()} == {
        "1": "TEAM R1",
        "2": "TEAM R2",
    }


def test_known_fiches_are_found_among_seventy_thousand_ids(
    database: Database, clock: FakeClock
) -> None:
    known = [DetailsFetched("7", fiche("7", recording("a"))), FicheNotFound("69999")]
    with database.transaction() as session:
        save_outcomes(session, known, clock.now())
    fiche_ids = [str(number) for number in range(70_000)]
    with database.reading() as session:
        answers = known_since(session, fiche_ids, clock.now() - timedelta(minutes=1), clock.now())
    assert sorted(answers, key=lambda answer: int(answer.fiche_id)) == [
        DetailsKnown("7", 1),
        FicheNotFound("69999"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (URL, "", URL),
        ("", URL, URL),
        (URL, "https://records.example.test/2.mp3", "https://records.example.test/2.mp3"),
        ("", "", ""),
    ],
)
def test_a_recording_url_is_never_replaced_by_an_empty_one(
    database: Database, before: str, after: str, kept: str
) -> None:
    save(database, found("1", recording("11", url=before)))
    save(database, found("1", replace(recording("11", url=after), duration_seconds=9)), at=LATER)
    [row] = recordings(database).values()
    assert (row.recording_url, row.duration_seconds) == (kept, 9)


@pytest.mark.parametrize(
    ("before", "after", "kept"), [("a", None, "a"), (None, "b", "b"), ("a", "b", "b")]
)
def test_a_recording_uuid_is_never_replaced_by_none(
    database: Database, before: str | None, after: str | None, kept: str | None
) -> None:
    for uuid in (before, after):
        save(database, found("1", replace(recording("11"), uuid=uuid)))
    [row] = recordings(database).values()
    assert row.uuid == kept


def test_a_call_missing_from_newer_details_is_marked_vanished_until_it_returns(
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


def test_saving_recordings_alone_never_marks_calls_as_vanished(database: Database) -> None:
    """A sales list saves its recordings this way."""
    save(database, found("1", recording("11"), recording("12")), found("2", recording("21")))
    save(database, found("2"), at=LATER)
    with database.transaction() as session:
        save_recordings(
            session, {"1": [recording("11", url="")], "2": [recording("21"), recording("22")]}
        )
        save_recordings(session, {})
    assert vanished(database) == dict.fromkeys([("1", "11"), ("1", "12"), ("2", "21"), ("2", "22")])
    assert recordings(database)["1", "11"].recording_url == URL


def test_the_same_call_id_on_two_fiches_is_two_recordings(database: Database) -> None:
    save(database, found("1", recording("11")), found("2", recording("11", url="")))
    assert {key: row.recording_url for key, row in recordings(database).items()} == {
        ("1", "11"): URL,
        ("2", "11"): "",
    }
