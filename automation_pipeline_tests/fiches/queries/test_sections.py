"""Sections of details are read back as they were sent, and replace earlier ones, on both databases."""

import copy
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from automation_pipeline.fiches.models.fiches import FicheNotFound
from automation_pipeline.fiches.tables import (
    SECTION_TABLES,
    CallRecordingRow,
    FicheCacheRow,
)
from automation_pipeline.simulator import Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fiches.queries.mirror import (
    DAY,
    SECTIONS,
    Document,
    day,
    fetched,
    payloads,
    read_back,
    save,
)

ENVELOPE = {"success", "message", "recordings"}


def sections_of(payload: Document) -> Document:
    return {name: value for name, value in payload.items() if name not in ENVELOPE}


def full() -> Document:
    """The payload of a fiche with content in every section."""
    whole: Document = {}
    for payload in payloads(200):
        whole |= {name: value for name, value in payload.items() if value and not whole.get(name)}
    assert all(whole.values())
    return copy.deepcopy(whole)


def rows(database: Database) -> dict[str, int]:
    with database.reading() as session:
        return {
            table.name: session.scalar(select(func.count()).select_from(table)) or 0
            for table in SECTIONS
        }


def test_a_day_with_every_kind_of_fiche_reads_back_as_sent(database: Database) -> None:
    assert {sold.kind for sold in World(fiches_per_day=70, vary=False).day(DAY)} == set(Kind)
    save(database, *day(70))
    assert read_back(database) == {
        payload["information"]["fiche_id"]: sections_of(payload) for payload in payloads(70)
    }


def test_every_section_table_receives_rows(database: Database) -> None:
    save(database, fetched(full()))
    assert [table for table, count in rows(database).items() if not count] == []
    assert read_back(database) == {full()["information"]["fiche_id"]: sections_of(full())}


EMPTIED: dict[str, Any] = {"prospect": None, "conjoint": None, "elements_souscription": None}


@pytest.mark.parametrize(
    "section", [name for name in payloads(1)[0] if name not in ENVELOPE and name != "information"]
)
def test_a_section_missing_from_newer_details_is_deleted_alone(
    database: Database, section: str
) -> None:
    save(database, fetched(full()))
    newer = full() | {section: EMPTIED.get(section, {} if section == "raw_sections" else [])}
    save(database, fetched(newer))
    assert read_back(database) == {newer["information"]["fiche_id"]: sections_of(newer)}


def test_a_section_is_replaced_as_a_whole(database: Database) -> None:
    save(database, fetched(full()))
    other = full()
    other["documents"] = [*reversed(other["documents"] * 2)]
    other["information"]["etiquettes"] = []
    other["information"]["modules"] = []
    other["tarification"][0]["gammes"].append(copy.deepcopy(other["tarification"][0]["gammes"][0]))
    other["tarification"][0]["gammes"][0]["formules"][0]["details"] = {"Dentaire": "300 %"}
    save(database, fetched(other))
    assert read_back(database) == {other["information"]["fiche_id"]: sections_of(other)}


def test_nested_subscription_objects_may_be_null(database: Database) -> None:
    for inner in ("ancien_contrat", "produit", "paiement"):
        payload = full()
        payload["elements_souscription"][inner] = None
        save(database, fetched(payload))
        assert read_back(database) == {payload["information"]["fiche_id"]: sections_of(payload)}


def test_saving_a_fiche_does_not_change_other_fiches(database: Database) -> None:
    first, second = day(2)
    save(database, first, second)
    before = read_back(database)
    save(database, second)
    save(database, FicheNotFound(first.fiche_id))
    assert read_back(database) == before


def test_section_rows_are_numbered_from_one_in_crm_order(database: Database) -> None:
    document = full()
    document["information"]["etiquettes"] = [{"nom": nom, "date": "", "style": ""} for nom in "zab"]
    save(database, fetched(document))
    with database.reading() as session:
        columns = SECTION_TABLES["etiquettes"].c
        query = select(columns.etiquette_index, columns.nom).order_by(columns.etiquette_index)
        assert session.execute(query).tuples().all() == [(1, "z"), (2, "a"), (3, "b")]


def test_deleting_a_fiche_deletes_its_recordings_and_sections(database: Database) -> None:
    save(database, fetched(full()))
    with database.transaction() as session:
        session.execute(delete(FicheCacheRow))
        assert session.scalar(select(func.count()).select_from(CallRecordingRow)) == 0
    assert set(rows(database).values()) == {0}
