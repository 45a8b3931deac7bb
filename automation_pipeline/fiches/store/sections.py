"""The sections of details as rows, and how those of a batch replace what was there: two statements a table."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from automation_pipeline.fiches.domain.fiche import FicheDetails
from automation_pipeline.fiches.domain.sections import AncienContrat, Compte, Paiement, Produit, Section
from automation_pipeline.fiches.tables import (
    AlerteRow,
    AutreContratRow,
    CommentaireRow,
    ConjointRow,
    DocumentRow,
    ElementsSouscriptionRow,
    EnfantRow,
    EtiquetteRow,
    FormuleDetailRow,
    FormuleRow,
    GammeRow,
    InformationRow,
    MailRow,
    ProspectRow,
    RawSectionRow,
    ReclamationRow,
    RendezVousRow,
    TarificationRow,
)
from automation_pipeline.fiches.tables.sections import OfFiche
from automation_pipeline.storage.bulk import among

Row: TypeAlias = dict[str, object]
RowsOf: TypeAlias = Callable[[FicheDetails], Sequence[Row]]


def replace_sections(session: Session, details: Mapping[int, FicheDetails]) -> None:
    """The keys are those of the fiches' rows. The caller holds these rows: nobody else writes the same sections."""
    if not details:
        return
    connection = session.connection()
    for table, rows_of in _SECTIONS.items():
        connection.execute(delete(table).where(among(session, table.fiche_cache_id, details)))
        if rows := [{"fiche_cache_id": key, **row} for key, each in details.items() for row in rows_of(each)]:
            connection.execute(insert(table), rows)


def _numbered(sections: Sequence[Section], *unwanted: str, index: str = "row_index") -> list[Row]:
    return [{index: place, **_fields(section, *unwanted)} for place, section in enumerate(sections, start=1)]


def _fields(section: Section, *unwanted: str) -> Row:
    row = dict(vars(section))  # the modelled fields: what is not modelled is kept beside them
    for name in unwanted:
        del row[name]
    return row


def _single(section: Section | None, *unwanted: str) -> list[Row]:
    return [] if section is None else [_fields(section, *unwanted)]


def _souscription(details: FicheDetails) -> list[Row]:
    whole = details.elements_souscription
    if whole is None:
        return []
    paiement = whole.paiement
    flat = {
        **_flat("ancien_", AncienContrat, whole.ancien_contrat),
        **_flat("produit_", Produit, whole.produit),
        **_flat("paiement_", Paiement, paiement, "compte_prelevement", "compte_virement"),
        **_flat("prelevement_", Compte, paiement and paiement.compte_prelevement),
        **_flat("virement_", Compte, paiement and paiement.compte_virement),
    }
    return [_fields(whole, "ancien_contrat", "produit", "paiement") | flat]


def _flat(prefix: str, kind: type[Section], section: Section | None, *unwanted: str) -> Row:
    names = [name for name in kind.model_fields if name not in unwanted]
    return {prefix + name: None if section is None else getattr(section, name) for name in names}


def _gammes(details: FicheDetails) -> list[Row]:
    return [
        {"row_index": row_index, **row}
        for row_index, tarification in enumerate(details.tarification, start=1)
        for row in _numbered(tarification.gammes, "formules", index="gamme_index")
    ]


def _formules(details: FicheDetails) -> list[Row]:
    return [
        {"row_index": row_index, "gamme_index": gamme_index, **row}
        for row_index, tarification in enumerate(details.tarification, start=1)
        for gamme_index, gamme in enumerate(tarification.gammes, start=1)
        for row in _numbered(gamme.formules, "details", index="formule_index")
    ]


def _formule_details(details: FicheDetails) -> list[Row]:
    return [
        {
            "row_index": row_index,
            "gamme_index": gamme_index,
            "formule_index": formule_index,
            "detail_key": key,
            "detail_value": value,
        }
        for row_index, tarification in enumerate(details.tarification, start=1)
        for gamme_index, gamme in enumerate(tarification.gammes, start=1)
        for formule_index, formule in enumerate(gamme.formules, start=1)
        for key, value in formule.details.items()
    ]


_SECTIONS: Mapping[type[OfFiche], RowsOf] = {
    InformationRow: lambda details: _single(details.information, "fiche_id", "etiquettes"),
    EtiquetteRow: lambda details: _numbered(details.information.etiquettes, index="etiquette_index"),
    ProspectRow: lambda details: _single(details.prospect),
    ConjointRow: lambda details: _single(details.conjoint),
    EnfantRow: lambda details: _numbered(details.enfants),
    MailRow: lambda details: _numbered(details.mails),
    RendezVousRow: lambda details: _numbered(details.rendez_vous),
    CommentaireRow: lambda details: _numbered(details.commentaires),
    ReclamationRow: lambda details: _numbered(details.reclamations),
    DocumentRow: lambda details: _numbered(details.documents),
    AlerteRow: lambda details: _numbered(details.alertes),
    RawSectionRow: lambda details: [
        {"section_key": key, "content": text} for key, text in details.raw_sections.items()
    ],
    ElementsSouscriptionRow: _souscription,
    AutreContratRow: lambda details: _numbered(details.autres_contrats),
    TarificationRow: lambda details: _numbered(details.tarification, "gammes"),
    GammeRow: _gammes,
    FormuleRow: _formules,
    FormuleDetailRow: _formule_details,
}
