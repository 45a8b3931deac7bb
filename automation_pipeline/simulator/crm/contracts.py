"""What was sold and what exists: `elements_souscription`, `tarification`, `autres_contrats`."""

from datetime import timedelta
from random import Random

from automation_pipeline.simulator.crm.formats import Section, french_day, french_minute
from automation_pipeline.simulator.world.values import Fiche

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
