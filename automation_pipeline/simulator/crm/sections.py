"""The sections of a fiche's details, in the format of the CRM."""

from datetime import date, datetime, timedelta
from random import Random
from typing import TypeAlias

from automation_pipeline.simulator.audio import recording_path
from automation_pipeline.simulator.world.world import (
    CIVILITES,
    GROUPES,
    NOMS,
    PRENOMS,
    Fiche,
    Recording,
    mail_address,
    mobile_number,
)

Section: TypeAlias = dict[str, object]


def french_day(day: date) -> str:
    return f"{day:%d/%m/%Y}"


def french_minute(instant: datetime) -> str:
    return f"{instant:%d/%m/%Y %H:%M}"


def recording_json(recording: Recording, origin: str, *, with_transcription: bool) -> Section:
    """`origin` is the simulator's address, so that the URL leads to it. The CRM has no
    transcripts."""
    shown: Section = {
        "call_id": recording.call_id,
        "start_time": recording.started_at.isoformat(timespec="microseconds"),
        "duration_seconds": recording.duration_seconds,
        "direction": recording.direction,
        "from_number": recording.from_number,
        "to_number": recording.to_number,
        "answered": recording.answered,
        "recording_url": f"{origin}{recording_path(recording)}" if recording.has_url else None,
    }
    return shown | {"transcription": None} if with_transcription else shown


TOWNS = (
    ("75012", "PARIS"),
    ("59000", "LILLE"),
    ("44100", "NANTES"),
    ("31500", "TOULOUSE"),
    ("29200", "BREST"),
)
STREETS = (
    "rue des Tilleuls",
    "avenue du Moulin",
    "impasse des Lavoirs",
    "chemin de la Garenne",
    "place du Marché",
)
REGIMES = (("1", "Général"), ("2", "Agricole"), ("3", "Indépendant"), ("4", "Alsace-Moselle"))
SITUATIONS = ((1, "Célibataire"), (2, "Marié(e)"), (3, "Divorcé(e)"), (4, "Veuf(ve)"), (6, "Autre"))
CATEGORIES = ((3, "Cadre"), (4, "Employé"), (5, "Artisan"), (6, "Retraité"))


def prospect(fiche: Fiche, rng: Random) -> Section:
    person = fiche.prospect
    regime, regime_text = rng.choice(REGIMES)
    code_postal, ville = rng.choice(TOWNS)
    situation, situation_text = rng.choice(SITUATIONS)
    csp, csp_text = rng.choice(CATEGORIES)
    return {
        "prospect_id": f"28{fiche.id}",
        "civilite": person.civilite,
        "civilite_text": person.civilite_text,
        "nom": person.nom,
        "prenom": person.prenom,
        "date_naissance": _birthday(fiche.sold_on, rng, youngest=28, oldest=85),
        "regime": regime,
        "regime_text": regime_text,
        "telephone": person.telephone,
        "mobile": person.telephone if rng.random() < 0.5 else None,
        "telephone_2": person.telephone_2,
        "mail": person.email,
        "mail_2": None,
        "adresse": f"{rng.randrange(1, 120)} {rng.choice(STREETS)}",
        "code_postal": code_postal,
        "ville": ville,
        "num_secu": None,
        "num_affiliation": None,
        "situation_familiale": situation,
        "situation_familiale_text": situation_text,
        "madelin": regime == "3",
        "profession": csp_text.lower() if rng.random() < 0.5 else None,
        "csp": csp,
        "csp_text": csp_text,
        "fax": None,
    }


def spouse(fiche: Fiche, rng: Random) -> Section:
    nom = fiche.prospect.nom
    regime, regime_text = rng.choice(REGIMES)
    csp, csp_text = rng.choice(CATEGORIES)
    civilite, prenom = rng.choice(PRENOMS)
    return {
        "conjoint_id": f"31{fiche.id}",
        "civilite": civilite,
        "civilite_text": CIVILITES[civilite],
        "nom": nom,
        "prenom": prenom,
        "date_naissance": _birthday(fiche.sold_on, rng, youngest=28, oldest=85),
        "regime": regime,
        "regime_text": regime_text,
        "telephone": None,
        "mobile": mobile_number(rng) if rng.random() < 0.5 else None,
        "mail": mail_address(prenom, nom) if rng.random() < 0.5 else None,
        "profession": None,
        "csp": csp,
        "csp_text": csp_text,
    }


def children(fiche: Fiche, rng: Random) -> list[Section]:
    return [_child(fiche, number, rng) for number in range(rng.choice((0, 0, 0, 1, 2)))]


def _child(fiche: Fiche, number: int, rng: Random) -> Section:
    civilite, prenom = rng.choice(PRENOMS)
    return {
        "enfant_id": f"4{number}{fiche.id}",
        "civilite": civilite,
        "civilite_text": CIVILITES[civilite],
        "nom": fiche.prospect.nom,
        "prenom": prenom,
        "date_naissance": _birthday(fiche.sold_on, rng, youngest=1, oldest=20),
        "regime": "1",
        "regime_text": "Général",
    }


def _birthday(today: date, rng: Random, *, youngest: int, oldest: int) -> str:
    return french_day(today - timedelta(days=rng.randrange(youngest * 365, oldest * 365)))


INSURERS = ("MUTUELLE DES RIVES", "AZUR PRÉVOYANCE", "UNION DES VALLÉES", "HORIZON FAMILLES")
GAMMES = ("SÉRÉNITÉ", "ESSENTIEL PLUS", "VITALITÉ SENIOR")
LEVELS = ("Niveau 1", "Niveau 2", "Niveau 3", "Niveau 4")
DOCS = "https://docs.exemple.test"


def subscription(fiche: Fiche, rng: Random) -> Section:
    sold_on = french_day(fiche.sold_on)
    return {
        "souscription_id": f"5{fiche.id}",
        "date_souscription": sold_on,
        "date_signature": sold_on,
        "date_validation": french_day(fiche.sold_on + timedelta(days=2))
        if rng.random() < 0.6
        else None,
        "num_contrat": f"CT-{fiche.id}" if rng.random() < 0.7 else None,
        "annulation_contrat": rng.random() < 0.05,
        "type_vente": rng.choice(("Vente directe", "Vente rappel")),
        "vente_a_froid": "Non",
        "vf_accept": None,
        "ancien_contrat": _former_contract(fiche, rng) if rng.random() < 0.7 else None,
        "produit": _product(fiche, rng),
        "paiement": _payment(fiche, rng),
        "questions_complementaires": {
            "Portabilité": "Non",
            "Résiliation à effectuer": rng.choice(("Oui", "Non")),
        },
        "questions_conseil": {
            "Besoin optique": rng.choice(("Faible", "Moyen", "Fort")),
            "Besoin dentaire": "Moyen",
        },
        "raw_data": {"canal": "téléphone", "saisie": french_minute(fiche.inserted_at)},
    }


def _former_contract(fiche: Fiche, rng: Random) -> Section:
    return {
        "deja_assure": True,
        "plus_12_mois": rng.random() < 0.8,
        "ria_requested": rng.random() < 0.5,
        "assureur": rng.choice(INSURERS),
        "code_assureur": None,
        "adresse": None,
        "code_postal": None,
        "ville": None,
        "date_souscription": french_day(fiche.sold_on - timedelta(days=rng.randrange(400, 3000))),
        "date_echeance": f"31/12/{fiche.sold_on.year}",
        "num_contrat": f"AC{rng.randrange(10**7):07d}",
        "formule": rng.choice(LEVELS),
        "cotisation": _price(rng),
    }


def _product(fiche: Fiche, rng: Random) -> Section:
    insurer, gamme, level = rng.choice(INSURERS), rng.choice(GAMMES), rng.choice(LEVELS)
    return {
        "date_effet": french_day(fiche.sold_on + timedelta(days=rng.randrange(20, 90))),
        "date_effet_modifiable": "Oui",
        "formule": f"{gamme} {level}",
        "groupe_nom": insurer,
        "gamme_nom": gamme,
        "formule_nom": level,
        "cotisation": _price(rng),
        "type_contrat": "Santé individuelle",
        "type_client": "Particulier",
        "logo_url": f"{DOCS}/logo.png",
        "garanties_url": f"{DOCS}/garanties.pdf",
        "dipa_url": f"{DOCS}/dipa.pdf",
        "conditions_generales_url": f"{DOCS}/conditions.pdf",
        "bulletin_adhesion_url": None,
        "devoir_conseil_url": f"{DOCS}/conseil/{fiche.id}.pdf",
    }


def _payment(fiche: Fiche, rng: Random) -> Section:
    account: Section = {
        "account_id": f"9{fiche.id}",
        "titulaire_nom": fiche.prospect.nom,
        "titulaire_prenom": fiche.prospect.prenom,
        "titulaire_adresse": None,
        "titulaire_cp": None,
        "titulaire_ville": None,
    }
    return {
        "mode_paiement": "Prélèvement",
        "prelevement_le": rng.choice(("5", "10", "15")),
        "periodicite": "Mensuelle",
        "pas_coord_bancaires": False,
        "compte_prelevement": account,
        "compte_virement": account if rng.random() < 0.5 else None,
    }


def tariffs(rng: Random) -> list[Section]:
    return [_tariff(insurer, rng) for insurer in rng.sample(INSURERS, rng.randrange(1, 3))]


def _tariff(insurer: str, rng: Random) -> Section:
    formulas: list[Section] = [
        {
            "formule_id": str(rng.randrange(1000, 9999)),
            "nom": level,
            "prix": _price(rng),
            "details": {"Hospitalisation": "150 %", "Optique": "200 €"},
        }
        for level in LEVELS[:2]
    ]
    gamme: Section = {
        "nom": rng.choice(GAMMES),
        "logo_url": f"{DOCS}/logo.png",
        "garanties_url": f"{DOCS}/garanties.pdf",
        "conditions_generales_url": None,
        "bulletin_adhesion_url": None,
        "formules": formulas,
    }
    return {"nom": insurer, "gammes": [gamme]}


def other_contracts(fiche: Fiche, rng: Random) -> list[Section]:
    if rng.random() < 0.85:
        return []
    contract: Section = {
        "contrat_id": f"6{fiche.id}",
        "type_contrat": "Obsèques",
        "assureur": rng.choice(INSURERS),
        "numero_contrat": f"OB{rng.randrange(10**6):06d}",
        "date_souscription": french_day(fiche.sold_on - timedelta(days=rng.randrange(100, 2000))),
        "montant": _price(rng),
        "commentaire": None,
    }
    return [contract]


def _price(rng: Random) -> str:
    return f"{rng.randrange(2500, 18000) / 100:.2f}"


PROVENANCES = (
    ("118", "COMPARATEUR A"),
    ("121", "PARRAINAGE"),
    ("134", "SITE VITRINE"),
    ("140", "CAMPAGNE HIVER"),
)


def information(fiche: Fiche, rng: Random) -> Section:
    """The section `information`: owner, origin and state of the fiche. Only this section has the
    groupe."""
    return {
        "fiche_id": fiche.id,
        "cle": fiche.cle,
        "date_insertion": french_minute(fiche.inserted_at),
        "createur": fiche.agent.nom if rng.random() < 0.5 else None,
        "fiches_associees": None,
        "nombre_acces": rng.randrange(1, 15),
        "dernier_acces": french_minute(
            fiche.inserted_at + timedelta(minutes=rng.randrange(360, 2000))
        ),
        **_ownership(fiche),
        **_origin(rng),
        **_preferences(rng),
        **_tracking(fiche, rng),
        "corbeille": False,
        "archive": False,
        "modules": ["Santé"] if rng.random() < 0.8 else ["Santé", "Prévoyance"],
        "etiquettes": [
            {
                "nom": "Écoute",
                "date": french_day(fiche.sold_on + timedelta(days=1)),
                "style": "background:#2A8C30",
            }
        ],
    }


def _ownership(fiche: Fiche) -> Section:
    team = GROUPES.index(fiche.agent.groupe)
    return {
        "groupe": fiche.groupe,
        "groupe_responsable": f"Responsable {NOMS[team]}" if fiche.groupe else None,
        "groupe_gestion": None,
        "groupe_reclamation": None,
        "agence_id": str(team + 1),
        "agence_nom": f"{team + 1}-{fiche.agent.groupe.replace(' ', '')}",
        "attribution_user_id": fiche.agent.id,
        "attribution_user_nom": fiche.agent.nom,
        "attribution_bis_user_id": None,
        "attribution_bis_user_nom": None,
    }


def _origin(rng: Random) -> Section:
    provenance_id, provenance_nom = rng.choice(PROVENANCES)
    return {
        "provenance_id": provenance_id,
        "provenance_nom": provenance_nom,
        "provenance_numero": None,
        "provenance_periode_rappel": "matin" if rng.random() < 0.2 else None,
        "origine_id": None,
        "origine_nom": None,
    }


def _preferences(rng: Random) -> Section:
    return {
        "refus_demarchage": False,
        "exception_demarchage": False,
        "exception_demarchage_commentaire": None,
        "niveau_interet": rng.choice((None, 1, 2, 3)),
        "desinscription_mail": rng.random() < 0.05,
    }


def _tracking(fiche: Fiche, rng: Random) -> Section:
    opened = rng.randrange(4)
    last_opened_at = (
        french_minute(fiche.inserted_at + timedelta(minutes=rng.randrange(20, 600)))
        if opened
        else None
    )
    return {
        "nombre_ouverture_mails": opened,
        "derniere_ouverture_mail": last_opened_at,
        "nombre_visualisation_pages": opened * 2,
        "derniere_visualisation_page": last_opened_at,
        "espace_prospect_url": f"https://espace.exemple.test/p/{fiche.cle[:12]}",
        "ferme_espace_prospect": False,
    }


def mail_devis(fiche: Fiche, rng: Random) -> Section:
    """The section `mail_devis`: the mailed quote with its guarantees. Only sent on request."""
    person = fiche.prospect
    return {
        "mail_devis": {
            "date_envoi": french_minute(fiche.inserted_at + timedelta(minutes=10)),
            "type_mail": "Devis",
            "utilisateur": fiche.agent.nom,
            "visualisation_url": f"https://mails.exemple.test/{fiche.id}/0",
        },
        "customer_info": {
            "email": person.email,
            "phone": person.telephone,
            "name": f"{person.prenom} {person.nom}",
        },
        "garanties_link": {"url": f"{DOCS}/garanties/{fiche.id}", "text": "Voir les garanties"},
        "garanties_details": _guarantees(fiche, rng),
    }


def _guarantees(fiche: Fiche, rng: Random) -> Section:
    gamme, level = rng.choice(GAMMES), rng.choice(LEVELS)
    person = fiche.prospect
    return {
        "gamme": gamme,
        "product_name": f"{gamme} SANTÉ",
        "formule": level,
        "price": f"{rng.randrange(30, 180)},00 €",
        "age_range": "60-69 ans",
        "subscription_link": f"https://espace.exemple.test/s/{fiche.cle[:12]}",
        "agence_info": {
            "nom": fiche.agent.groupe,
            "telephone": fiche.agent.line,
            "email": "agence@exemple.test",
        },
        "fiche_info": {"fiche_id": fiche.id, "cle": fiche.cle},
        "subscriber_info": {
            "civilite": person.civilite_text,
            "nom": person.nom,
            "prenom": person.prenom,
        },
        "documents": [{"nom": "Conditions générales", "url": f"{DOCS}/conditions.pdf"}],
        "menu_links": [{"text": "Garanties", "url": f"{DOCS}/garanties.pdf"}],
        "garanties": {
            "Hospitalisation": [{"nom": "Chambre particulière", "valeur": "60 € par jour"}],
            "Optique": [{"nom": "Verres complexes", "valeur": "300 €"}],
            "Dentaire": [{"nom": "Prothèses", "valeur": "200 %"}],
        },
        "notes": ["Remboursements sous déduction de la part du régime obligatoire."],
    }


REMARKS = (
    "Client satisfait, souhaite un rappel avant la date d'effet.",
    "Attend sa carte de tiers payant.",
    "A demandé l'envoi du devis par courrier.",
    "Hésitait sur l'optique, niveau revu à la hausse.",
)


def mails(fiche: Fiche, rng: Random) -> list[Section]:
    return [
        {
            "date_envoi": _later(fiche, 10 + 45 * number),
            "type_mail": kind,
            "utilisateur": fiche.agent.nom,
            "visualisation_url": f"https://mails.exemple.test/{fiche.id}/{number}"
            if number == 0
            else None,
        }
        for number, kind in enumerate(("Devis", "Bienvenue")[: rng.randrange(3)])
    ]


def appointments(fiche: Fiche, rng: Random) -> list[Section]:
    if rng.random() < 0.7:
        return []
    appointment: Section = {
        "rdv_id": f"7{fiche.id}",
        "etiquette": "Rappel",
        "etiquette_color": "#1F6FB2",
        "utilisateur": fiche.agent.nom,
        "date_debut": _later(fiche, 1440),
        "date_fin": _later(fiche, 1470) if rng.random() < 0.5 else None,
        "commentaire": None,
        "statut": rng.choice(("Prévu", "Honoré", None)),
    }
    return [appointment]


def comments(fiche: Fiche, rng: Random) -> list[Section]:
    return [
        {
            "commentaire_id": f"8{number}{fiche.id}",
            "date": _later(fiche, 15 * (number + 1)),
            "utilisateur": fiche.agent.nom,
            "texte": text,
        }
        for number, text in enumerate(rng.sample(REMARKS, rng.randrange(3)))
    ]


def complaints(fiche: Fiche, rng: Random) -> list[Section]:
    if rng.random() < 0.93:
        return []
    complaint: Section = {
        "reclamation_id": f"3{fiche.id}",
        "date_creation": french_day(fiche.sold_on + timedelta(days=12)),
        "assureur": None,
        "type_reclamation": "Double prélèvement",
        "description": "Le client signale deux échéances sur le même mois.",
        "statut": "En cours",
        "date_traitement": None,
        "utilisateur_creation": fiche.agent.nom,
        "utilisateur_traitement": None,
    }
    return [complaint]


def documents(fiche: Fiche, rng: Random) -> list[Section]:
    return [
        {
            "document_id": f"2{number}{fiche.id}",
            "type": kind,
            "nom": f"{kind.lower()}-{fiche.id}.pdf",
            "taille": f"{rng.randrange(40, 900)} Ko",
            "date_creation": _later(fiche, 30),
            "selection_mail": False,
            "partage_prospect": number == 0,
            "signer": number == 0,
            "download_url": f"https://docs.exemple.test/{fiche.id}/{number}"
            if rng.random() < 0.9
            else None,
        }
        for number, kind in enumerate(("Bulletin", "Mandat", "Attestation")[: rng.randrange(1, 4)])
    ]


def alerts(fiche: Fiche, rng: Random) -> list[Section]:
    if rng.random() < 0.8:
        return []
    handled = rng.random() < 0.5
    alert: Section = {
        "alerte_id": f"1{fiche.id}",
        "etat": "Traitée" if handled else "Ouverte",
        "date": _later(fiche, 2880),
        "etiquette": "Qualité",
        "libelle": "Pièce manquante",
        "deposee_le": _later(fiche, 60),
        "deposee_par": fiche.agent.nom,
        "commentaire": None,
        "attribuee_a": fiche.agent.nom,
        "traitee_le": _later(fiche, 3000) if handled else None,
        "traitee_par": fiche.agent.nom if handled else None,
        "commentaire_traitement": "Pièce reçue." if handled else None,
    }
    return [alert]


def _later(fiche: Fiche, minutes: int) -> str:
    return french_minute(fiche.inserted_at + timedelta(minutes=minutes))


def details_json(fiche: Fiche, recordings: list[Section], *, with_mail_devis: bool) -> Section:
    rng = Random(f"{fiche.cle}/details")
    details: Section = {
        "success": True,
        "message": "Fiche lue",
        "information": information(fiche, rng),
        "prospect": prospect(fiche, rng),
        "conjoint": spouse(fiche, rng) if rng.random() < 0.35 else None,
        "enfants": children(fiche, rng),
        "mails": mails(fiche, rng),
        "rendez_vous": appointments(fiche, rng),
        "commentaires": comments(fiche, rng),
        "elements_souscription": subscription(fiche, rng) if rng.random() < 0.95 else None,
        "tarification": tariffs(rng),
        "reclamations": complaints(fiche, rng),
        "autres_contrats": other_contracts(fiche, rng),
        "documents": documents(fiche, rng),
        "alertes": alerts(fiche, rng),
        "raw_sections": {"entete": f"Fiche {fiche.id} du {french_minute(fiche.inserted_at)}"},
        "recordings": recordings,
    }
    return (
        details | {"mail_devis": mail_devis(fiche, rng) if rng.random() < 0.85 else None}
        if with_mail_devis
        else details
    )
