"""What happened around a fiche: `mails`, `rendez_vous`, `commentaires`, `reclamations`,
`documents`, `alertes`."""

from datetime import timedelta
from random import Random

from automation_pipeline.simulator.crm.formats import Section, french_day, french_minute
from automation_pipeline.simulator.world.values import Fiche

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
