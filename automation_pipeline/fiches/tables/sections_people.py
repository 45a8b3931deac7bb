"""What a fiche is and whose: `information` with its labels, `prospect`, `conjoint`, `enfants`."""

from collections.abc import Sequence

from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.fiches.tables.sections import OfFiche, RowOfFiche
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import TextList


class InformationRow(OfFiche, Table):
    __tablename__ = "fiche_cache_information"

    cle: Mapped[str | None]
    date_insertion: Mapped[str]
    createur: Mapped[str | None]
    fiches_associees: Mapped[str | None]
    nombre_acces: Mapped[int]
    dernier_acces: Mapped[str]
    groupe: Mapped[str] = mapped_column(index=True)
    groupe_responsable: Mapped[str | None]
    groupe_gestion: Mapped[str | None]
    groupe_reclamation: Mapped[str | None]
    agence_id: Mapped[str]
    agence_nom: Mapped[str]
    attribution_user_id: Mapped[str] = mapped_column(index=True)
    attribution_user_nom: Mapped[str]
    provenance_id: Mapped[str]
    provenance_nom: Mapped[str]
    provenance_numero: Mapped[str | None]
    provenance_periode_rappel: Mapped[str | None]
    origine_id: Mapped[str | None]
    origine_nom: Mapped[str | None]
    attribution_bis_user_id: Mapped[str | None]
    attribution_bis_user_nom: Mapped[str | None]
    refus_demarchage: Mapped[bool]
    exception_demarchage: Mapped[bool]
    exception_demarchage_commentaire: Mapped[str | None]
    niveau_interet: Mapped[int | None]
    nombre_ouverture_mails: Mapped[int]
    derniere_ouverture_mail: Mapped[str | None]
    nombre_visualisation_pages: Mapped[int]
    derniere_visualisation_page: Mapped[str | None]
    espace_prospect_url: Mapped[str | None]
    ferme_espace_prospect: Mapped[bool]
    desinscription_mail: Mapped[bool]
    corbeille: Mapped[bool]
    archive: Mapped[bool]
    modules: Mapped[Sequence[str]] = mapped_column(TextList)


class EtiquetteRow(OfFiche, Table):
    __tablename__ = "fiche_cache_etiquettes"

    etiquette_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    nom: Mapped[str]
    date: Mapped[str]
    style: Mapped[str]


class ProspectRow(OfFiche, Table):
    __tablename__ = "fiche_cache_prospects"

    prospect_id: Mapped[str] = mapped_column(index=True)
    civilite: Mapped[int]
    civilite_text: Mapped[str]
    nom: Mapped[str]
    prenom: Mapped[str]
    date_naissance: Mapped[str]
    regime: Mapped[str]
    regime_text: Mapped[str]
    telephone: Mapped[str | None]
    mobile: Mapped[str | None]
    telephone_2: Mapped[str | None]
    mail: Mapped[str | None]
    mail_2: Mapped[str | None]
    adresse: Mapped[str | None]
    code_postal: Mapped[str | None]
    ville: Mapped[str | None]
    num_secu: Mapped[str | None]
    num_affiliation: Mapped[str | None]
    situation_familiale: Mapped[int | None]
    situation_familiale_text: Mapped[str | None]
    madelin: Mapped[bool]
    profession: Mapped[str | None]
    csp: Mapped[int | None]
    csp_text: Mapped[str | None]
    fax: Mapped[str | None]


class ConjointRow(OfFiche, Table):
    __tablename__ = "fiche_cache_conjoints"

    conjoint_id: Mapped[str]
    civilite: Mapped[int]
    civilite_text: Mapped[str]
    nom: Mapped[str]
    prenom: Mapped[str]
    date_naissance: Mapped[str]
    regime: Mapped[str | None]
    regime_text: Mapped[str | None]
    telephone: Mapped[str | None]
    mobile: Mapped[str | None]
    mail: Mapped[str | None]
    profession: Mapped[str | None]
    csp: Mapped[int | None]
    csp_text: Mapped[str | None]


class EnfantRow(RowOfFiche, Table):
    __tablename__ = "fiche_cache_enfants"

    enfant_id: Mapped[str]
    civilite: Mapped[int]
    civilite_text: Mapped[str]
    nom: Mapped[str]
    prenom: Mapped[str]
    date_naissance: Mapped[str]
    regime: Mapped[str | None]
    regime_text: Mapped[str | None]
