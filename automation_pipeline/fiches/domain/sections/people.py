"""The people of a fiche: `prospect`, `conjoint`, `enfants`."""

from automation_pipeline.fiches.domain.sections.base import Key, Section, Whole


class Prospect(Section):
    prospect_id: Key
    civilite: Whole
    civilite_text: str
    nom: str
    prenom: str
    date_naissance: str
    regime: str
    regime_text: str
    telephone: str | None
    mobile: str | None
    telephone_2: str | None
    mail: str | None
    mail_2: str | None
    adresse: str | None
    code_postal: str | None
    ville: str | None
    num_secu: str | None
    num_affiliation: str | None
    situation_familiale: Whole | None
    situation_familiale_text: str | None
    madelin: bool
    profession: str | None
    csp: Whole | None
    csp_text: str | None
    fax: str | None


class Conjoint(Section):
    conjoint_id: str
    civilite: Whole
    civilite_text: str
    nom: str
    prenom: str
    date_naissance: str
    regime: str | None
    regime_text: str | None
    telephone: str | None
    mobile: str | None
    mail: str | None
    profession: str | None
    csp: Whole | None
    csp_text: str | None


class Enfant(Section):
    enfant_id: str
    civilite: Whole
    civilite_text: str
    nom: str
    prenom: str
    date_naissance: str
    regime: str | None
    regime_text: str | None
