"""Helpers that build fetch outcomes, store them, and read the stored sections back."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import FromClause, event, select
from sqlalchemy.orm import Session

from automation_pipeline.clients.crm import DetailsPayload
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    FetchOutcome,
    FicheNotFound,
    Recording,
)
from automation_pipeline.fiches.queries.mirror import save_outcomes
from automation_pipeline.fiches.tables import SECTION_TABLES, CallRecordingRow, FicheCacheRow
from automation_pipeline.simulator import World
from automation_pipeline.simulator.crm.sections import details_json, recording_json
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.crm import fiche

DAY = date(2026, 2, 3)
FIRST = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
LATER = FIRST + timedelta(hours=3)
URL = "https://records.example.test/1.mp3"
KEYS = {"fiche_cache_id", "row_index", "etiquette_index", "gamme_index", "formule_index"}
SECTIONS = list(SECTION_TABLES.values())
Document = dict[str, Any]  # Any: JSON


@cache
def payloads(count: int) -> tuple[Document, ...]:
    """The details that the CRM sends for a day of `count` fiches."""
    return tuple(
        details_json(
            fiche,
            [
                recording_json(call, "http://crm.test", with_transcription=False)
                for call in fiche.recordings
            ],
            with_mail_devis=False,
        )
        for fiche in World(fiches_per_day=count, vary=False).day(DAY)
    )


def fetched(payload: Document) -> DetailsFetched:
    parsed = DetailsPayload.model_validate_json(json.dumps(payload))
    assert parsed.information
    return DetailsFetched(parsed.information.fiche_id, parsed.to_details(parsed.information))


def found(fiche_id: str, *recordings: Recording, **information: object) -> DetailsFetched:
    return DetailsFetched(fiche_id, fiche(fiche_id, *recordings, **information))


def recordings(database: Database) -> dict[tuple[str, str], CallRecordingRow]:
    query = select(FicheCacheRow.fiche_id, CallRecordingRow).join(
        FicheCacheRow, FicheCacheRow.id == CallRecordingRow.fiche_cache_id
    )
    with database.reading() as session:
        return {(fiche_id, row.call_id): row for fiche_id, row in session.execute(query).tuples()}


def vanished(database: Database) -> dict[tuple[str, str], datetime | None]:
    return {key: row.vanished_at for key, row in recordings(database).items()}


def day(count: int) -> list[DetailsFetched]:
    return [fetched(payload) for payload in payloads(count)]


def save(database: Database, *outcomes: FetchOutcome, at: datetime = FIRST) -> None:
    with database.transaction() as session:
        save_outcomes(session, outcomes, at)


def save_rounds(url: str, count: int, backwards: bool, missing: int, rounds: int) -> None:
    """Runs in one of several processes. The fiches with an even index are missing if `missing` is 0, those with an
    odd index if it is 1, and none if it is 2."""
    outcomes: list[FetchOutcome] = [
        FicheNotFound(found.fiche_id) if index % 2 == missing else found
        for index, found in enumerate(day(count))
    ]
    database = Database(url)
    for _ in range(rounds):
        save(database, *(reversed(outcomes) if backwards else outcomes))
    database.dispose()


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    sent: list[str] = []

    def record(*arguments: object) -> None:
        sent.append(str(arguments[2]))

    event.listen(database.engine, "before_cursor_execute", record)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", record)


def read_back(database: Database) -> dict[str, Document]:
    """The stored sections by fiche id, nested as the CRM sends them."""
    with database.reading() as session:
        keys = session.execute(select(FicheCacheRow.id, FicheCacheRow.fiche_id)).tuples().all()
        rows = {
            table.name.removeprefix("fiche_cache_"): _rows(session, table) for table in SECTIONS
        }
    return {
        fiche_id: _read(fiche_id, {name: of.get(key, []) for name, of in rows.items()})
        for key, fiche_id in keys
    }


def _rows(session: Session, table: FromClause) -> Mapping[int, Sequence[Document]]:
    found: dict[int, list[Document]] = defaultdict(list)
    for row in session.execute(select(table).order_by(*table.primary_key)).mappings():
        found[row["fiche_cache_id"]].append(dict(row))
    return found


def _plain(row: Document) -> Document:
    return {name: value for name, value in row.items() if name not in KEYS}


def _read(fiche_id: str, rows: Mapping[str, Sequence[Document]]) -> Document:
    def many(name: str) -> list[Document]:
        return [_plain(row) for row in rows[name]]

    def one(name: str) -> Document | None:
        return next(iter(many(name)), None)

    information, subscription = one("information"), one("elements_souscription")
    return {
        "information": information and information | {"fiche_id": fiche_id, "etiquettes": many("etiquettes")},
        "prospect": one("prospects"),
        "conjoint": one("conjoints"),
        "elements_souscription": subscription and _subscription(subscription),
        "tarification": [_tarification(row, rows) for row in rows["tarifications"]],
        "raw_sections": {row["section_key"]: row["content"] for row in rows["raw_sections"]},
        **{
            name: many(name)
            for name in ("enfants", "mails", "rendez_vous", "commentaires", "reclamations", "autres_contrats",
                         "documents", "alertes")
        },
    }  # fmt: skip


def _subscription(row: Document) -> Document:
    def nested(prefix: str) -> Document | None:
        names = [name for name in row if name.startswith(prefix)]
        inner = {name.removeprefix(prefix): row.pop(name) for name in names}
        return inner if any(value is not None for value in inner.values()) else None

    accounts = {
        "compte_prelevement": nested("prelevement_"),
        "compte_virement": nested("virement_"),
    }
    former, product, payment = nested("ancien_"), nested("produit_"), nested("paiement_")
    return row | {
        "ancien_contrat": former,
        "produit": product,
        "paiement": payment and payment | accounts,
    }


def _tarification(row: Document, rows: Mapping[str, Sequence[Document]]) -> Document:
    def within(name: str, parent: Document) -> list[Document]:
        parent_key = {key: parent[key] for key in KEYS & parent.keys()}
        return [child for child in rows[name] if parent_key.items() <= child.items()]

    return _plain(row) | {
        "gammes": [
            _plain(gamme)
            | {
                "formules": [
                    _plain(formule)
                    | {
                        "details": {
                            detail["detail_key"]: detail["detail_value"]
                            for detail in within("tarification_formule_details", formule)
                        }
                    }
                    for formule in within("tarification_formules", gamme)
                ]
            }
            for gamme in within("tarification_gammes", row)
        ]
    }
