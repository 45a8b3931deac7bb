"""The section `mail_devis`: the quote that was mailed, with the guarantees it offered. Only when
asked for."""

from datetime import timedelta
from random import Random

from automation_pipeline.simulator.crm.contracts import DOCS, GAMMES, LEVELS
from automation_pipeline.simulator.crm.formats import Section, french_minute
from automation_pipeline.simulator.world.values import Fiche


def mail_devis(fiche: Fiche, rng: Random) -> Section:
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
