"""What happened around a fiche: `mails`, `rendez_vous`, `commentaires`, `reclamations`, `documents`, `alertes`."""

from automation_pipeline.fiches.domain.sections.base import Section


class Mail(Section):
    date_envoi: str
    type_mail: str
    utilisateur: str
    visualisation_url: str | None


class RendezVous(Section):
    rdv_id: str
    etiquette: str | None
    etiquette_color: str | None
    utilisateur: str
    date_debut: str
    date_fin: str | None
    commentaire: str | None
    statut: str | None


class Commentaire(Section):
    commentaire_id: str
    date: str
    utilisateur: str
    texte: str


class Reclamation(Section):
    reclamation_id: str
    date_creation: str
    assureur: str | None
    type_reclamation: str | None
    description: str | None
    statut: str | None
    date_traitement: str | None
    utilisateur_creation: str | None
    utilisateur_traitement: str | None


class Document(Section):
    document_id: str
    type: str
    nom: str
    taille: str
    date_creation: str
    selection_mail: bool
    partage_prospect: bool
    signer: bool
    download_url: str | None


class Alerte(Section):
    alerte_id: str
    etat: str
    date: str
    etiquette: str | None
    libelle: str
    deposee_le: str
    deposee_par: str
    commentaire: str | None
    attribuee_a: str | None
    traitee_le: str | None
    traitee_par: str | None
    commentaire_traitement: str | None
