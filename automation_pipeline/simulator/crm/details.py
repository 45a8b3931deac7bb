"""The whole details payload of a fiche, put together from its sections, always the same."""

from random import Random

from automation_pipeline.simulator.crm.contracts import other_contracts, subscription, tariffs
from automation_pipeline.simulator.crm.follow_up import (
    alerts,
    appointments,
    comments,
    complaints,
    documents,
    mails,
)
from automation_pipeline.simulator.crm.formats import Section, french_minute
from automation_pipeline.simulator.crm.information import information
from automation_pipeline.simulator.crm.mail_devis import mail_devis
from automation_pipeline.simulator.crm.people import children, prospect, spouse
from automation_pipeline.simulator.world.values import Fiche


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
