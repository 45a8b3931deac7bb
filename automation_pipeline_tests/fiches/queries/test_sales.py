"""Storing a sales list takes few statements and removes no details."""

from datetime import date, timedelta

from sqlalchemy import event, select

from automation_pipeline.fiches.models.days import SalesDay
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    FicheNotFound,
    SalesList,
    SalesListEntry,
)
from automation_pipeline.fiches.queries.mirror import (
    coverage_of,
    fiches_sold_on,
    sales_day,
    save_outcomes,
    save_sales_list,
    volumes_of,
)
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import fiche, recording

DAY = date(2026, 2, 3)


def summary(
    fiche_id: str, nom: str = "MARTEL", cle: str | None = "c1", **given: object
) -> SalesListEntry:
    fields: dict[str, object] = {
        "prenom": "Odile", "telephone": "0600000001", "telephone_2": None, "email": "o.m@example.test",
        "statut": "Vente", "inserted_at": None, "modified_at": None, "recordings": (), **given,
    }  # fmt: skip
    return SalesListEntry(fiche_id=fiche_id, nom=nom, cle=cle, **fields)  # type: ignore[arg-type]


def listed(*fiches: SalesListEntry, day: date = DAY, of: int | None = None) -> SalesList:
    return SalesList(day=day, listed=len(fiches) if of is None else of, fiches=fiches)


def save(database: Database, clock: FakeClock, sales: SalesList):  # noqa: ANN201  the type of the function under test
    with database.transaction() as session:
        return save_sales_list(session, sales, clock.now())


def cached(database: Database, fiche_id: str) -> FicheCacheRow:
    with database.reading() as session:
        return session.scalars(
            select(FicheCacheRow).where(FicheCacheRow.fiche_id == fiche_id)
        ).one()


def test_the_sales_day_counts_describe_the_stored_list(
    database: Database, clock: FakeClock
) -> None:
    with_call = summary("1", recordings=(recording("a"),))
    first = save(database, clock, listed(with_call, summary("2", cle=None), of=3))
    assert first == SalesDay(
        day=DAY,
        revalidated_at=clock.now(),
        listed=3,
        duplicates=1,
        new=2,
        changed=0,
        missing_cle=1,
        without_recordings=1,
    )
    assert first.fiches == 2
    clock.advance(timedelta(hours=1))
    second = save(database, clock, listed(summary("1", nom="DURAND"), summary("2"), summary("3")))
    assert (second.new, second.changed) == (1, 2)
    with database.reading() as session:
        assert sales_day(session, DAY) == second
        assert volumes_of(session, [DAY, DAY - timedelta(weeks=1)]) == [3]
        assert fiches_sold_on(session, [DAY]) == ["1", "2", "3"]


def test_a_list_with_the_same_content_changes_nothing(database: Database, clock: FakeClock) -> None:
    save(database, clock, listed(summary("1"), summary("2")))
    assert save(database, clock, listed(summary("1"), summary("2"))).changed == 0


def test_a_sales_list_never_removes_stored_details(database: Database, clock: FakeClock) -> None:
    with database.transaction() as session:
        save_outcomes(
            session,
            [DetailsFetched("1", fiche("1", recording("a"), groupe="TEAM R2"))],
            clock.now(),
        )
    before = cached(database, "1")
    clock.advance(timedelta(hours=1))
    save(database, clock, listed(summary("1", nom="NEW NAME", cle=None)))
    after = cached(database, "1")
    assert (after.groupe, after.agence_nom, after.raw_data) == (
        before.groupe,
        before.agence_nom,
        before.raw_data,
    )
    assert (after.details_success, after.details_fetched_at) == (True, before.details_fetched_at)
    assert after.cle == before.cle
    assert (after.prospect_nom, after.sales_date) == ("NEW NAME", "2026-02-03")
    with database.reading() as session:
        assert coverage_of(session, DAY).with_details == 1


def test_a_sales_list_does_not_count_as_details(database: Database, clock: FakeClock) -> None:
    save(database, clock, listed(summary("1")))
    row = cached(database, "1")
    now = clock.now()
    assert {column.key: getattr(row, column.key) for column in FicheCacheRow.__table__.columns} == {
        "id": 1,
        "fiche_id": "1",
        "groupe": None,
        "agence_nom": None,
        "prospect_nom": "MARTEL",
        "prospect_prenom": "Odile",
        "prospect_email": "o.m@example.test",
        "prospect_tel": "0600000001",
        "sales_date": "2026-02-03",
        "cle": "c1",
        "details_success": None,
        "details_message": None,
        "raw_data": {
            "_salesListOnly": True,
            "telephone_2": None,
            "statut": "Vente",
            "date_insertion": None,
            "date_modification": None,
        },
        "fetched_at": now,
        "details_fetched_at": None,
        "not_found_until": None,
        "expires_at": now + timedelta(days=10),
        "last_revalidated_at": now,
    }


def test_a_not_found_fiche_stays_not_found_after_a_sales_list(
    database: Database, clock: FakeClock
) -> None:
    with database.transaction() as session:
        save_outcomes(session, [FicheNotFound("1")], clock.now())
    save(database, clock, listed(summary("1")))
    with database.reading() as session:
        coverage = coverage_of(session, DAY)
    assert (coverage.not_found, coverage.with_details) == (1, 0)


def test_a_sales_list_without_a_recording_url_keeps_the_stored_url(
    database: Database, clock: FakeClock
) -> None:
    save(database, clock, listed(summary("1", recordings=(recording("a"), recording("b")))))
    save(database, clock, listed(summary("1", recordings=(recording("a", url=""),))))
    with database.reading() as session:
        rows = session.execute(
            select(
                CallRecordingRow.call_id,
                CallRecordingRow.recording_url,
                CallRecordingRow.vanished_at,
            )
        )
        assert sorted(rows.tuples()) == [(call, recording(call).url, None) for call in ("a", "b")]


def test_a_long_list_is_saved_with_few_statements(database: Database, clock: FakeClock) -> None:
    statements: list[str] = []

    def count(*given: object) -> None:
        statements.append(str(given[2]))

    event.listen(database.engine, "before_cursor_execute", count)
    long = listed(*(summary(str(number), recordings=(recording("a"),)) for number in range(2_000)))
    assert save(database, clock, long).new == 2_000
    assert len(statements) <= 6


def test_an_empty_list_is_stored_as_a_fetched_day(database: Database, clock: FakeClock) -> None:
    save(database, clock, listed())
    with database.reading() as session:
        known = sales_day(session, DAY)
    assert known
    assert known.fiches == 0
