"""The section `information`: whose fiche it is, where it came from, what state it is in. The groupe
is only here."""

from datetime import timedelta
from random import Random

from automation_pipeline.simulator.crm.formats import Section, french_day, french_minute
from automation_pipeline.simulator.world.people import GROUPES, NOMS
from automation_pipeline.simulator.world.values import Fiche

PROVENANCES = (
    ("118", "COMPARATEUR A"),
    ("121", "PARRAINAGE"),
    ("134", "SITE VITRINE"),
    ("140", "CAMPAGNE HIVER"),
)


def information(fiche: Fiche, rng: Random) -> Section:
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
