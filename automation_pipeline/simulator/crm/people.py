"""The people of a fiche: `prospect`, `conjoint`, `enfants`."""

from datetime import date, timedelta
from random import Random

from automation_pipeline.simulator.crm.formats import Section, french_day
from automation_pipeline.simulator.world.people import (
    CIVILITES,
    PRENOMS,
    mail_address,
    mobile_number,
)
from automation_pipeline.simulator.world.values import Fiche

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
