"""What was sold and what exists: `elements_souscription`, `tarification`, `autres_contrats`."""

from automation_pipeline.fiches.domain.sections.base import JsonMap, Section, TextMap


class AncienContrat(Section):
    deja_assure: bool
    plus_12_mois: bool
    ria_requested: bool
    assureur: str | None
    code_assureur: str | None
    adresse: str | None
    code_postal: str | None
    ville: str | None
    date_souscription: str | None
    date_echeance: str | None
    num_contrat: str | None
    formule: str | None
    cotisation: str | None


class Produit(Section):
    date_effet: str | None
    date_effet_modifiable: str | None
    formule: str | None
    groupe_nom: str | None
    gamme_nom: str | None
    formule_nom: str | None
    cotisation: str | None
    type_contrat: str | None
    type_client: str | None
    logo_url: str | None
    garanties_url: str | None
    dipa_url: str | None
    conditions_generales_url: str | None
    bulletin_adhesion_url: str | None
    devoir_conseil_url: str | None


class Compte(Section):
    account_id: str | None
    titulaire_nom: str | None
    titulaire_prenom: str | None
    titulaire_adresse: str | None
    titulaire_cp: str | None
    titulaire_ville: str | None


class Paiement(Section):
    mode_paiement: str | None
    prelevement_le: str | None
    periodicite: str | None
    pas_coord_bancaires: bool
    compte_prelevement: Compte | None
    compte_virement: Compte | None


class ElementsSouscription(Section):
    souscription_id: str | None
    date_souscription: str | None
    date_signature: str | None
    date_validation: str | None
    num_contrat: str | None
    annulation_contrat: bool
    type_vente: str | None
    vente_a_froid: str | None
    vf_accept: str | None
    ancien_contrat: AncienContrat | None
    produit: Produit | None
    paiement: Paiement | None
    questions_complementaires: JsonMap
    questions_conseil: JsonMap
    raw_data: JsonMap


class Formule(Section):
    formule_id: str
    nom: str
    prix: str
    details: TextMap


class Gamme(Section):
    nom: str
    logo_url: str | None
    garanties_url: str | None
    conditions_generales_url: str | None
    bulletin_adhesion_url: str | None
    formules: tuple[Formule, ...]


class Tarification(Section):
    nom: str
    gammes: tuple[Gamme, ...]


class AutreContrat(Section):
    contrat_id: str
    type_contrat: str
    assureur: str | None
    numero_contrat: str | None
    date_souscription: str | None
    montant: str | None
    commentaire: str | None
