"""The CRM's details payload, section by section, with its own field names. `base` says how strictly it is read."""

from automation_pipeline.fiches.domain.sections.base import Section
from automation_pipeline.fiches.domain.sections.contracts import (
    AncienContrat,
    AutreContrat,
    Compte,
    ElementsSouscription,
    Formule,
    Gamme,
    Paiement,
    Produit,
    Tarification,
)
from automation_pipeline.fiches.domain.sections.follow_up import (
    Alerte,
    Commentaire,
    Document,
    Mail,
    Reclamation,
    RendezVous,
)
from automation_pipeline.fiches.domain.sections.information import Etiquette, Information
from automation_pipeline.fiches.domain.sections.people import Conjoint, Enfant, Prospect

__all__ = [
    "Alerte",
    "AncienContrat",
    "AutreContrat",
    "Commentaire",
    "Compte",
    "Conjoint",
    "Document",
    "ElementsSouscription",
    "Enfant",
    "Etiquette",
    "Formule",
    "Gamme",
    "Information",
    "Mail",
    "Paiement",
    "Produit",
    "Prospect",
    "Reclamation",
    "RendezVous",
    "Section",
    "Tarification",
]
