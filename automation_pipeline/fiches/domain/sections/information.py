"""The section `information`: whose fiche it is, where it came from, what state it is in. The groupe is only here."""

from automation_pipeline.fiches.domain.sections.base import Key, Section, Whole


class Etiquette(Section):
    nom: str
    date: str
    style: str


class Information(Section):
    fiche_id: str
    cle: str | None
    date_insertion: str
    createur: str | None
    fiches_associees: str | None
    nombre_acces: Whole
    dernier_acces: str
    groupe: Key
    groupe_responsable: str | None
    groupe_gestion: str | None
    groupe_reclamation: str | None
    agence_id: str
    agence_nom: str
    attribution_user_id: Key
    attribution_user_nom: str
    provenance_id: str
    provenance_nom: str
    provenance_numero: str | None
    provenance_periode_rappel: str | None
    origine_id: str | None
    origine_nom: str | None
    attribution_bis_user_id: str | None
    attribution_bis_user_nom: str | None
    refus_demarchage: bool
    exception_demarchage: bool
    exception_demarchage_commentaire: str | None
    niveau_interet: Whole | None
    nombre_ouverture_mails: Whole
    derniere_ouverture_mail: str | None
    nombre_visualisation_pages: Whole
    derniere_visualisation_page: str | None
    espace_prospect_url: str | None
    ferme_espace_prospect: bool
    desinscription_mail: bool
    corbeille: bool
    archive: bool
    modules: tuple[str, ...]
    etiquettes: tuple[Etiquette, ...]
