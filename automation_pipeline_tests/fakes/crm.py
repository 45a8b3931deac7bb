"""A CRM in memory. `fiches/test_fiche_source_contract.py` runs it and the real client through the same
tests."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime

from automation_pipeline.core.errors import AutomationError, NotFoundError
from automation_pipeline.fiches.models.fiches import CrmFiche, Recording, SalesList, SalesListEntry
from automation_pipeline.fiches.models.sections import Information, Prospect

INFORMATION = Information.model_validate_json("""{
    "fiche_id": "1900417", "cle": "5f0c77aa91e34b0c8d2e1f6a7b8c9d00", "date_insertion": "03/02/2026 10:12",
    "createur": null, "fiches_associees": null, "nombre_acces": 4, "dernier_acces": "03/02/2026 18:40",
    "groupe": "TEAM R1", "groupe_responsable": "Lead One", "groupe_gestion": null, "groupe_reclamation": null,
    "agence_id": "7", "agence_nom": "7-TEAMR1", "attribution_user_id": "42", "attribution_user_nom": "Agent Test",
    "provenance_id": "118", "provenance_nom": "SRC", "provenance_numero": null, "provenance_periode_rappel": null,
    "origine_id": null, "origine_nom": null, "attribution_bis_user_id": null, "attribution_bis_user_nom": null,
    "refus_demarchage": false, "exception_demarchage": false, "exception_demarchage_commentaire": null,
    "niveau_interet": null, "nombre_ouverture_mails": 0, "derniere_ouverture_mail": null,
    "nombre_visualisation_pages": 0, "derniere_visualisation_page": null, "espace_prospect_url": null,
    "ferme_espace_prospect": false, "desinscription_mail": false, "corbeille": false, "archive": false,
    "modules": ["Sante"], "etiquettes": [{"nom": "Ecoute", "date": "04/02/2026", "style": "background:#2A8C30"}]
}""")
PROSPECT = Prospect.model_validate_json("""{
    "prospect_id": "2800001", "civilite": 2, "civilite_text": "Madame", "nom": "MARTEL", "prenom": "Odile",
    "date_naissance": "01/01/1960", "regime": "1", "regime_text": "General", "telephone": "0600000001",
    "mobile": null, "telephone_2": null, "mail": "odile.martel@example.test", "mail_2": null, "adresse": null,
    "code_postal": "75000", "ville": "PARIS", "num_secu": null, "num_affiliation": null, "situation_familiale": 6,
    "situation_familiale_text": "Autre", "madelin": false, "profession": null, "csp": 6, "csp_text": "Retraite",
    "fax": null
}""")
EXAMPLE = CrmFiche(
    information=INFORMATION, prospect=PROSPECT, conjoint=None, enfants=(), mails=(), rendez_vous=(), commentaires=(),
    elements_souscription=None, tarification=(), reclamations=(), autres_contrats=(), documents=(), alertes=(),
    raw_sections={}, recordings=(), rest={},
)  # fmt: skip


def fiche(fiche_id: str, *recordings: Recording, **information: object) -> CrmFiche:
    """The example fiche of the CRM's documentation, with these fields of `information` replaced."""
    result = INFORMATION.model_copy(update={"fiche_id": fiche_id, **information})
    return replace(EXAMPLE, information=result, recordings=recordings)


def summary(fiche_id: str, *recordings: Recording) -> SalesListEntry:
    return SalesListEntry(
        fiche_id=fiche_id,
        cle=INFORMATION.cle,
        nom="MARTEL",
        prenom="Odile",
        telephone="0600000001",
        telephone_2=None,
        email="odile.martel@example.test",
        statut="Vente",
        inserted_at=datetime(2026, 2, 3, 9, 12, tzinfo=UTC),
        modified_at=None,
        recordings=recordings,
    )


def recording(call_id: str, url: str = "https://records.example.test/1.mp3") -> Recording:
    return Recording(
        call_id=call_id,
        url=url,
        started_at=datetime(2026, 2, 3, 9, 14, 5, tzinfo=UTC),
        duration_seconds=742,
        direction="out",
        from_number="33100000001",
        to_number="33600000001",
        answered=True,
    )


class FakeFicheSource:
    """Returns the fiches and sales that a test has added; any other fiche is not found.

    `requests` lists the requested fiche ids and days (ISO) in order. `fail_once` and `fail_always`
    take the same texts as `subject`.
    """

    at_once = 10

    def __init__(self, fiches: Iterable[CrmFiche] = ()) -> None:
        self.requests: list[str] = []
        self._fiches = {each.fiche_id: each for each in fiches}
        self._sales: dict[date, tuple[SalesListEntry, ...]] = {}
        self._once: dict[str, list[AutomationError]] = {}
        self._always: dict[str, AutomationError] = {}
        self._refusal: AutomationError | None = None

    def add(self, *fiches: CrmFiche) -> None:
        self._fiches |= {each.fiche_id: each for each in fiches}

    def remove(self, *fiche_ids: str) -> None:
        for fiche_id in fiche_ids:
            self._fiches.pop(fiche_id, None)

    def set_sales(self, day: date, *fiches: SalesListEntry) -> None:
        """Replace the sales of the day. The list may contain a fiche more than once."""
        self._sales[day] = fiches

    def fail_once(self, subject: str, *errors: AutomationError) -> None:
        """The next calls for the fiche or the day raise these errors, one error per call."""
        self._once.setdefault(subject, []).extend(errors)

    def fail_always(self, subject: str, error: AutomationError) -> None:
        self._always[subject] = error

    def refuse_everything(self, error: AutomationError) -> None:
        self._refusal = error

    async def details(self, fiche_id: str) -> CrmFiche:
        self.requests.append(fiche_id)
        if error := self._error_for(fiche_id):
            raise error
        if fiche_id not in self._fiches:
            raise NotFoundError(f"The CRM does not know fiche {fiche_id}.")
        return self._fiches[fiche_id]

    async def sales_list(self, day: date) -> SalesList:
        self.requests.append(day.isoformat())
        if error := self._error_for(day.isoformat()):
            raise error
        sold = self._sales.get(day, ())
        firsts: dict[str, SalesListEntry] = {}
        for each in sold:
            firsts.setdefault(each.fiche_id, each)
        return SalesList(day, len(sold), tuple(firsts.values()))

    async def check(self) -> None:
        if self._refusal:
            raise self._refusal

    def _error_for(self, subject: str) -> AutomationError | None:
        once = self._once.get(subject)
        return self._refusal or (once.pop(0) if once else self._always.get(subject))
