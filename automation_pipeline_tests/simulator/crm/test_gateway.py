"""The CRM gateway over a real socket: the formats of its answers, options, authentication, and recording URLs."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from typing import Any

import httpx
import pytest

from automation_pipeline.simulator.world.world import Fiche, Kind, World
from automation_pipeline_tests.cases import every_case

WORLD = World(seed=11, fiches_per_day=24, vary=False)
TUESDAY = date(2026, 2, 3)
SALES = "/api/fiches/sales-with-calls"

TEXT, NUMBER, FLAG = (str,), (int, float), (bool,)
OPTIONAL_TEXT, OPTIONAL_NUMBER = (str, type(None)), (int, float, type(None))


def fields(kind: tuple[type, ...], names: str) -> dict[str, tuple[type, ...]]:
    return dict.fromkeys(names.split(), kind)


RECORDING = {
    **fields(TEXT, "call_id start_time direction from_number to_number"),
    **fields(NUMBER, "duration_seconds"),
    **fields(FLAG, "answered"),
    **fields(OPTIONAL_TEXT, "recording_url"),
}
SUMMARY = {
    **fields(TEXT, "id nom prenom telephone email statut date_insertion"),
    **fields(OPTIONAL_TEXT, "cle telephone_2 date_modification"),
    "recordings": (list,),
}
TOP_LEVEL = {
    **fields(FLAG, "success"),
    **fields(TEXT, "message"),
    **fields((dict,), "information prospect raw_sections"),
    **fields((dict, type(None)), "conjoint elements_souscription"),
    **fields(
        (list,),
        "enfants mails rendez_vous commentaires tarification reclamations autres_contrats documents alertes recordings",
    ),
}
SECTIONS = {
    "information": {
        **fields(
            TEXT,
            "fiche_id cle date_insertion dernier_acces groupe agence_id agence_nom attribution_user_id "
            "attribution_user_nom provenance_id provenance_nom",
        ),
        **fields(
            OPTIONAL_TEXT,
            "createur fiches_associees groupe_responsable groupe_gestion groupe_reclamation provenance_numero "
            "provenance_periode_rappel origine_id origine_nom attribution_bis_user_id attribution_bis_user_nom "
            "exception_demarchage_commentaire derniere_ouverture_mail derniere_visualisation_page espace_prospect_url",
        ),
        **fields(NUMBER, "nombre_acces nombre_ouverture_mails nombre_visualisation_pages"),
        **fields(OPTIONAL_NUMBER, "niveau_interet"),
        **fields(
            FLAG,
            "refus_demarchage exception_demarchage ferme_espace_prospect desinscription_mail corbeille archive",
        ),
        **fields((list,), "modules etiquettes"),
    },
    "prospect": {
        **fields(TEXT, "prospect_id civilite_text nom prenom date_naissance regime regime_text"),
        **fields(
            OPTIONAL_TEXT,
            "telephone mobile telephone_2 mail mail_2 adresse code_postal ville num_secu num_affiliation "
            "situation_familiale_text profession csp_text fax",
        ),
        **fields(NUMBER, "civilite"),
        **fields(OPTIONAL_NUMBER, "situation_familiale csp"),
        **fields(FLAG, "madelin"),
    },
    "conjoint": {
        **fields(TEXT, "conjoint_id civilite_text nom prenom date_naissance"),
        **fields(OPTIONAL_TEXT, "regime regime_text telephone mobile mail profession csp_text"),
        **fields(NUMBER, "civilite"),
        **fields(OPTIONAL_NUMBER, "csp"),
    },
    "enfants": {
        **fields(TEXT, "enfant_id civilite_text nom prenom date_naissance"),
        **fields(OPTIONAL_TEXT, "regime regime_text"),
        **fields(NUMBER, "civilite"),
    },
    "mails": {
        **fields(TEXT, "date_envoi type_mail utilisateur"),
        **fields(OPTIONAL_TEXT, "visualisation_url"),
    },
    "rendez_vous": {
        **fields(TEXT, "rdv_id utilisateur date_debut"),
        **fields(OPTIONAL_TEXT, "etiquette etiquette_color date_fin commentaire statut"),
    },
    "commentaires": fields(TEXT, "commentaire_id date utilisateur texte"),
    "elements_souscription": {
        **fields(
            OPTIONAL_TEXT,
            "souscription_id date_souscription date_signature date_validation num_contrat type_vente vente_a_froid "
            "vf_accept",
        ),
        **fields(FLAG, "annulation_contrat"),
        **fields((dict, type(None)), "ancien_contrat produit paiement"),
        **fields((dict,), "questions_complementaires questions_conseil raw_data"),
    },
    "tarification": {**fields(TEXT, "nom"), **fields((list,), "gammes")},
    "reclamations": {
        **fields(TEXT, "reclamation_id date_creation"),
        **fields(
            OPTIONAL_TEXT,
            "assureur type_reclamation description statut date_traitement utilisateur_creation utilisateur_traitement",
        ),
    },
    "autres_contrats": {
        **fields(TEXT, "contrat_id"),
        **fields(
            OPTIONAL_TEXT,
            "type_contrat assureur numero_contrat date_souscription montant commentaire",
        ),
    },
    "documents": {
        **fields(TEXT, "document_id type nom taille date_creation"),
        **fields(FLAG, "selection_mail partage_prospect signer"),
        **fields(OPTIONAL_TEXT, "download_url"),
    },
    "alertes": {
        **fields(TEXT, "alerte_id etat date libelle deposee_le deposee_par"),
        **fields(
            OPTIONAL_TEXT,
            "etiquette commentaire attribuee_a traitee_le traitee_par commentaire_traitement",
        ),
    },
    "recordings": RECORDING,
}
SUBSECTIONS = {
    "ancien_contrat": {
        **fields(FLAG, "deja_assure plus_12_mois ria_requested"),
        **fields(
            OPTIONAL_TEXT,
            "assureur code_assureur adresse code_postal ville date_souscription date_echeance num_contrat formule "
            "cotisation",
        ),
    },
    "produit": fields(
        OPTIONAL_TEXT,
        "date_effet date_effet_modifiable formule groupe_nom gamme_nom formule_nom cotisation type_contrat type_client "
        "logo_url garanties_url dipa_url conditions_generales_url bulletin_adhesion_url devoir_conseil_url",
    ),
    "paiement": {
        **fields(OPTIONAL_TEXT, "mode_paiement prelevement_le periodicite"),
        **fields(FLAG, "pas_coord_bancaires"),
        **fields((dict, type(None)), "compte_prelevement compte_virement"),
    },
}


@pytest.fixture(scope="module")
def crm() -> Iterator[httpx.Client]:
    command = [
        sys.executable,
        "-m",
        "automation_pipeline.simulator",
        "--seed",
        "11",
        "--exact",
        "--token",
        "clé",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().split()[-1]
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer clé".encode()}) as client:
            yield client
        process.terminate()


def fiche_of_kind(kind: Kind) -> Fiche:
    return next(fiche for fiche in WORLD.day(TUESDAY) if fiche.kind is kind)


def listed(crm: httpx.Client, **params: str) -> Any:
    answer = crm.get(
        SALES,
        params={"start_date": "2026-02-03", "end_date": "2026-02-03", "status_id": "53", **params},
    )
    assert answer.status_code == 200
    return answer.json()


def detailed(crm: httpx.Client, fiche: Fiche, **params: str) -> Any:
    return crm.get(f"/api/fiches/by-id/{fiche.id}", params=params).raise_for_status().json()


def assert_shape(value: dict[str, Any], shape: dict[str, tuple[type, ...]]) -> None:
    assert set(value) == set(shape)
    for name, kinds in shape.items():
        assert type(value[name]) in kinds, f"{name} is {value[name]!r}"


def test_the_sales_list_of_a_day_has_every_fiche_in_the_known_shape(crm: httpx.Client) -> None:
    body = listed(crm, include_recordings="true")
    assert set(body) == {"fiches", "total"}
    assert body["total"] == len(body["fiches"]) == 24
    for summary, fiche in zip(body["fiches"], WORLD.day(TUESDAY), strict=True):
        assert_shape(summary, SUMMARY)
        assert (summary["id"], summary["cle"]) == (fiche.id, fiche.listed_cle)
        assert len(summary["recordings"]) == len(fiche.recordings)
        for recording in summary["recordings"]:
            assert_shape(recording, RECORDING)


@pytest.mark.parametrize("params", [{}, {"include_recordings": "false"}])
def test_the_sales_list_has_recordings_only_on_request(
    crm: httpx.Client, params: dict[str, str]
) -> None:
    assert all(fiche["recordings"] == [] for fiche in listed(crm, **params)["fiches"])


def test_a_range_of_days_lists_the_days_in_order(crm: httpx.Client) -> None:
    body = listed(crm, end_date="2026-02-05")
    days = [date(2026, 2, number) for number in (3, 4, 5)]
    assert [fiche["id"] for fiche in body["fiches"]] == [
        fiche.id for day in days for fiche in WORLD.day(day)
    ]


def test_only_sales_are_listed(crm: httpx.Client) -> None:
    assert listed(crm, status_id="12") == {"fiches": [], "total": 0}


@every_case(
    "params",
    [
        {},
        {"start_date": "2026-02-03"},
        {"start_date": "03/02/2026", "end_date": "03/02/2026"},
        {"start_date": "20260203", "end_date": "20260203"},
        {"start_date": "2026-02-30", "end_date": "2026-03-01"},
        {"start_date": "2026-02-03", "end_date": "2026-02-02"},
        {"start_date": "2000-01-01", "end_date": "2026-02-02"},
        {"start_date": "2026-02-03", "end_date": "2026-02-03", "include_recordings": "maybe"},
    ],
)
def test_an_invalid_query_is_a_422_in_json(crm: httpx.Client, params: dict[str, str]) -> None:
    answer = crm.get(SALES, params=params)
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_details_have_every_section_with_every_field(crm: httpx.Client) -> None:
    seen: set[str] = set()
    for fiche in WORLD.day(TUESDAY) + WORLD.day(date(2026, 2, 4)) + WORLD.day(date(2026, 2, 5)):
        if fiche.kind is Kind.MISSING:
            continue
        body = detailed(crm, fiche)
        assert_shape(body, TOP_LEVEL)
        for name, shape in SECTIONS.items():
            for value in body[name] if isinstance(body[name], list) else filter(None, [body[name]]):
                assert_shape(value, shape)
                seen.add(name)
        for name, shape in SUBSECTIONS.items():
            if value := (body["elements_souscription"] or {}).get(name):
                assert_shape(value, shape)
                seen.add(name)
    assert seen == set(SECTIONS) | set(SUBSECTIONS)


def test_details_and_list_agree_and_only_details_have_the_groupe(crm: httpx.Client) -> None:
    for summary in listed(crm, include_recordings="true")["fiches"]:
        fiche = WORLD.fiche(summary["id"])
        assert fiche
        if fiche.kind is Kind.MISSING:
            continue
        body = detailed(crm, fiche)
        information, prospect = body["information"], body["prospect"]
        assert body["recordings"] == summary["recordings"]
        assert summary["cle"] in {None, information["cle"]}
        assert information["date_insertion"] == summary["date_insertion"]
        assert (prospect["nom"], prospect["telephone_2"]) == (
            summary["nom"],
            summary["telephone_2"],
        )
        assert (prospect["prenom"], prospect["telephone"]) == (
            summary["prenom"],
            summary["telephone"],
        )
        assert prospect["mail"] == summary["email"]
        assert (information["groupe"], information["attribution_user_id"]) == (
            fiche.groupe,
            fiche.agent.id,
        )


def test_details_have_recordings_and_the_mailed_quote_on_request(crm: httpx.Client) -> None:
    fiche = fiche_of_kind(Kind.MANY_RECORDINGS)
    assert detailed(crm, fiche, include_recordings="false")["recordings"] == []
    assert "mail_devis" not in detailed(crm, fiche)
    quotes = [
        detailed(crm, fiche, include_mail_devis="true")["mail_devis"]
        for fiche in WORLD.day(TUESDAY)
        if fiche.kind is not Kind.MISSING
    ]
    assert any(quotes)
    for quote in filter(None, quotes):
        assert set(quote) == {"mail_devis", "customer_info", "garanties_link", "garanties_details"}
    transcribed = detailed(crm, fiche, include_transcriptions="true")["recordings"]
    assert all(recording["transcription"] is None for recording in transcribed)


@pytest.mark.parametrize("fiche_id", [fiche_of_kind(Kind.MISSING).id, "953000024", "nonsense"])
def test_a_fiche_without_details_is_a_404_in_json(crm: httpx.Client, fiche_id: str) -> None:
    answer = crm.get(f"/api/fiches/by-id/{fiche_id}")
    assert answer.status_code == 404
    assert fiche_id in answer.json()["detail"]


@every_case("path", [SALES, "/api/fiches/by-id/953000003"])
@every_case("header", ["", "Bearer wrong", "Basic clé", "clé"])
def test_the_api_requires_the_token(crm: httpx.Client, path: str, header: str) -> None:
    answer = crm.get(path, headers={"Authorization": header.encode()})
    assert answer.status_code == 401
    assert answer.json() == {"detail": "Not authenticated"}


def test_the_word_bearer_may_have_any_case_and_health_is_public(crm: httpx.Client) -> None:
    header = {"Authorization": "bEARER clé".encode()}
    assert (
        crm.get(f"/api/fiches/by-id/{fiche_of_kind(Kind.ORDINARY).id}", headers=header).status_code
        == 200
    )
    assert httpx.get(crm.base_url.join("/health")).json() == {"status": "ok"}


def test_a_recording_url_has_the_host_of_the_request(
    crm: httpx.Client,
) -> None:
    local = f"http://localhost:{crm.base_url.port}"
    answer = crm.get(f"{local}/api/fiches/by-id/{fiche_of_kind(Kind.MANY_RECORDINGS).id}")
    recording = answer.json()["recordings"][0]
    assert recording["recording_url"].startswith(f"{local}/recordings/")
    audio = httpx.get(recording["recording_url"])
    head = httpx.head(recording["recording_url"])
    assert audio.status_code == head.status_code == 200
    assert audio.headers["content-type"] == head.headers["content-type"] == "audio/mpeg"
    assert int(head.headers["content-length"]) == len(audio.content)
    assert head.content == b""
    assert audio.content.startswith(b"ID3")
    assert recording["call_id"].encode() in audio.content


def test_a_recording_under_another_name_or_without_url_is_not_served(crm: httpx.Client) -> None:
    silent = fiche_of_kind(Kind.NO_URL).recordings[0]
    assert detailed(crm, fiche_of_kind(Kind.NO_URL))["recordings"][0]["recording_url"] is None
    assert crm.get(f"/recordings/{silent.call_id}/{silent.file_name}").status_code == 404
    assert (
        crm.get(
            f"/recordings/{fiche_of_kind(Kind.ORDINARY).recordings[0].call_id}/other.mp3"
        ).status_code
        == 404
    )


def test_unknown_paths_and_methods_are_refused_in_json(crm: httpx.Client) -> None:
    assert (crm.get("/nowhere").status_code, crm.get("/nowhere").json()) == (
        404,
        {"detail": "Not Found"},
    )
    assert crm.post(SALES).status_code == 405
