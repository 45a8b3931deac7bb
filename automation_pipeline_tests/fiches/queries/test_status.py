"""The status of many fiches: visibility, paging and a constant number of statements."""

from datetime import date, timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.fiches.queries.fiches import (
    FichePage,
    cache_row,
    fiches_in_short,
    fiches_sold,
    recordings_of,
    statuses_of,
)
from automation_pipeline.fiches.queries.mirror import save_sales_list
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.crm import recording, summary
from automation_pipeline_tests.fiches.queries.mirror import FIRST, LATER, found, save, statements

DAY = date(2026, 2, 3)
NORD = Reach(Scope.GROUP, groupes=frozenset({"NORD"}))
ALL = FichePage(1000)


def mirrored(database: Database, *fiche_ids: str, groupe: str = "NORD", calls: int = 2) -> None:
    for fiche_id in fiche_ids:
        save(
            database,
            found(fiche_id, *(recording(f"{fiche_id}0{n}") for n in range(calls)), groupe=groupe),
        )


def transcribed(database: Database, *call_ids: str) -> None:
    with database.transaction() as session:
        done = update(CallRecordingRow).where(CallRecordingRow.call_id.in_(call_ids))
        session.execute(done.values(has_transcription=True, transcribed_at=FIRST))


def test_each_fiche_has_its_own_status(database: Database) -> None:
    mirrored(database, "1", "2")
    mirrored(database, "3", calls=0)
    transcribed(database, "100", "200", "201")
    with database.reading() as session:
        statuses = statuses_of(session, ["2", "1", "9", "3", "1"], EVERYTHING)
    assert list(statuses) == ["2", "1", "9", "3"]
    parts = {fiche_id: status["transcription"] for fiche_id, status in statuses.items()}
    assert parts["1"] == {
        "total": 2, "transcribed": 1, "pending": 1, "percentage": 50, "isComplete": False,
        "lastTranscribedAt": "2026-05-04T10:00:00.000Z",
    }  # fmt: skip
    assert [part["isComplete"] for part in parts.values()] == [True, False, False, True]
    assert [status["hasData"] for status in statuses.values()] == [True, True, False, True]


def test_vanished_calls_are_not_counted(database: Database) -> None:
    mirrored(database, "1")
    save(database, found("1", recording("100"), groupe="NORD"), at=LATER)
    with database.reading() as session:
        assert cache_row(session, "1", EVERYTHING)["recordingsCount"] == 1
        [row], _ = fiches_sold(session, [DAY], EVERYTHING, ALL)
        calls = recordings_of(session, "1", EVERYTHING)
    assert [call["callId"] for call in row["recordings"]] == ["100"]
    assert [(call["callId"], call["vanishedAt"] is None) for call in calls] == [
        ("100", True),
        ("101", False),
    ]


def test_fiches_outside_the_callers_scope_are_not_returned(database: Database) -> None:
    mirrored(database, "1")
    mirrored(database, "2", groupe="SUD")
    with database.transaction() as session:
        save_sales_list(session, SalesList(DAY, 1, (summary("3"),)), FIRST)
    with database.reading() as session:
        assert [status["hasData"] for status in statuses_of(session, "123", NORD).values()] == [
            True,
            False,
            False,
        ]
        rows, total = fiches_sold(session, [DAY], NORD, ALL)
        assert ([row["ficheId"] for row in rows], total) == (["1"], 1)
        rows, total = fiches_in_short(session, [DAY], NORD, ALL)
        assert ([row["ficheId"] for row in rows], total) == (["1"], 1)
        for hidden in ("2", "3", "9"):
            with pytest.raises(NotFoundError, match="Fiche not cached"):
                cache_row(session, hidden, NORD)
            with pytest.raises(NotFoundError, match=f"Fiche {hidden} not found"):
                recordings_of(session, hidden, NORD)


def test_created_at_comes_from_the_details_or_else_from_the_sales_list(database: Database) -> None:
    mirrored(database, "1")
    save(database, found("2", groupe="NORD", date_insertion="sometime"))
    with database.transaction() as session:
        save_sales_list(session, SalesList(DAY, 2, (summary("2"), summary("3"))), FIRST)
    with database.reading() as session:
        rows, _ = fiches_sold(session, [DAY], EVERYTHING, ALL)
    created = {row["ficheId"]: row["createdAt"] for row in rows}
    assert created == {"1": "2026-02-03T09:12:00.000Z", "2": None, "3": "2026-02-03T09:12:00.000Z"}


def test_fiches_of_several_days_are_paged(database: Database) -> None:
    days = [DAY + timedelta(days=n) for n in range(3)]
    with database.transaction() as session:
        for n, day in enumerate(days):
            save_sales_list(session, SalesList(day, 2, (summary(f"{n}1"), summary(f"{n}2"))), FIRST)
    with database.reading() as session:
        pages = [
            fiches_sold(session, days[:2], EVERYTHING, FichePage(3, offset)) for offset in (0, 3)
        ]
        short, count = fiches_in_short(session, [days[0], days[2]], EVERYTHING, FichePage(3))
        assert fiches_sold(session, [], EVERYTHING, ALL) == ([], 0)
    assert [[row["ficheId"] for row in rows] for rows, _ in pages] == [["01", "02", "11"], ["12"]]
    assert [total for _, total in pages] == [4, 4]
    assert ([row["ficheId"] for row in short], count) == (["01", "02", "21"], 4)


def test_the_number_of_queries_is_independent_of_the_number_of_fiches(database: Database) -> None:
    def statement_counts() -> list[int]:
        counts: list[int] = []
        for reach in (EVERYTHING, NORD):
            with database.reading() as session, statements(database) as sent:
                statuses_of(session, [str(n) for n in range(1, 40)], reach)
                fiches_sold(session, [DAY, DAY + timedelta(days=1)], reach, ALL)
                fiches_in_short(session, [DAY], reach, ALL)
            counts.append(len(sent))
        return counts

    mirrored(database, "1")
    for_one = statement_counts()
    mirrored(database, *(str(n) for n in range(2, 40)))
    assert statement_counts() == for_one
    assert max(for_one) <= 10
