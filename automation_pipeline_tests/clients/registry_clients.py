"""Company registry clients on a mock transport, and builders of their documents."""

from datetime import UTC, datetime
from typing import Any

import httpx

from automation_pipeline.clients.inpi import Account, InpiRegister
from automation_pipeline.clients.registries import CommerceRegister, CompanySearch, Purpose
from automation_pipeline_tests.clients.mock_answers import Answer, with_client
from automation_pipeline_tests.fakes.registries import UnlimitedRate

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
ROOT = "https://registry.test/hidden"
SIREN, SIRET = "552032534", "55203253400646"
OTHER = "732829320"
PASSWORD, TOKEN = "p4ssword", "jwt.s3cret"
PURPOSE = Purpose("13002526500013", "a reason", "a matter")


def options(answer: Any, **more: Any) -> dict[str, Any]:
    # Long enough for a mock response on any machine.
    return {
        "now": lambda: NOW,
        "transport": httpx.MockTransport(answer),
        "timeout_seconds": 60.0,
    } | more


def search(answer: Any, **more: Any) -> CompanySearch:
    return CompanySearch(ROOT, **options(answer, **more))


def inpi(answer: Any, **more: Any) -> InpiRegister:
    return InpiRegister(
        ROOT, Account("anna", PASSWORD), **options(answer, **{"limiter": UnlimitedRate(), **more})
    )


def entreprise(answer: Any, **more: Any) -> CommerceRegister:
    return CommerceRegister(ROOT, TOKEN, PURPOSE, **options(answer, **more))


def fetch(registry: Any, siren: str = SIREN, siret: str | None = None) -> Any:
    return with_client(registry, lambda one: one.fetch(siren, siret))


def logged_in(answer: Answer) -> Answer:
    """INPI with a login that always succeeds. `answer` handles the other requests."""

    def answered(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json={"token": TOKEN, "user": {}})
        return answer(request)

    return answered


def seat(**changed: object) -> dict[str, Any]:
    return {
        "siret": SIRET,
        "adresse": "17 BOULEVARD HAUSSMANN 75009 PARIS",
        "code_postal": "75009",
        "commune": "75109",
        "libelle_commune": "PARIS",
        "etat_administratif": "A",
    } | changed


def unit(siren: str = SIREN, **changed: object) -> dict[str, Any]:
    return {
        "siren": siren,
        "nom_complet": "DANONE (GERVAIS)",
        "nom_raison_sociale": "DANONE",
        "sigle": None,
        "siege": seat(),
        "activite_principale": "70.10Z",
        "date_creation": "1955-01-01",
        "date_mise_a_jour": "2026-05-01T01:00:00",
        "etat_administratif": "A",
        "nature_juridique": "5599",
        "tranche_effectif_salarie": "42",
        "statut_diffusion": "O",
        "matching_etablissements": [],
        "score": 1.5,
    } | changed


def found(*units: object) -> dict[str, Any]:
    return {
        "results": list(units),
        "total_results": len(units),
        "page": 1,
        "per_page": 10,
        "total_pages": 1,
    }


def formality(kind: str = "personneMorale", siren: str = SIREN, **entity: Any) -> dict[str, Any]:
    description = {
        "identite": {
            "entreprise": {
                "siren": siren,
                "denomination": "DANONE",
                "nomCommercial": "GERVAIS",
                "sigle": None,
                "formeJuridique": "5599",
                "codeApe": "7010Z",
                "nicSiege": "00646",
                "dateRad": None,
            }
        },
        "adresseEntreprise": {
            "adresse": {
                "codePays": "FRA",
                "codePostal": "75009",
                "commune": "PARIS",
                "numVoie": "17",
                "typeVoie": "BD",
                "voie": "HAUSSMANN",
            }
        },
        "detailCessationEntreprise": {"dateRadiation": None},
    } | entity
    nature = {"dateCreation": "1955-01-01", "formeJuridique": "5599"}
    return {
        "siren": siren,
        "updatedAt": "2026-05-01T03:12:45+02:00",
        "formality": {
            "siren": siren,
            "diffusionCommerciale": True,
            "content": {"natureCreation": nature, kind: description},
        },
    }


def extract(siren: str = SIREN, **changed: object) -> dict[str, Any]:
    data = {
        "siren": siren,
        "date_extrait": "04/05/2026",
        "date_immatriculation": "1955-02-01",
        "date_radiation": None,
        "nom_commercial": "GERVAIS",
        "greffe": {"valeur": "PARIS", "code": "7501"},
        "etablissement_principal": {"code_ape": "7010Z"},
        "personne_morale": {
            "denomination": "DANONE",
            "forme_juridique": {"valeur": "SA", "code": "SA"},
        },
        "personne_physique": {"nom": None, "prenom": None},
    }
    return {"data": data | changed, "links": {}, "meta": {}}


def complaint(*codes: str, **meta: object) -> dict[str, Any]:
    return {
        "errors": [
            {"code": code, "title": "No", "detail": "No.", "source": {}, "meta": meta}
            for code in codes
        ]
    }
