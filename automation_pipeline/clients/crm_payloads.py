"""The CRM's answers as they come over the wire, checked and turned into the values of `fiches.domain`."""

import re
from datetime import date, datetime
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from automation_pipeline.fiches.domain.fiche import FicheDetails, Recording
from automation_pipeline.fiches.domain.recording_name import recording_name
from automation_pipeline.fiches.domain.sales import FicheSummary, SalesList
from automation_pipeline.fiches.domain.sections import (
    Alerte,
    AutreContrat,
    Commentaire,
    Conjoint,
    Document,
    ElementsSouscription,
    Enfant,
    Information,
    Mail,
    Prospect,
    Reclamation,
    RendezVous,
    Section,
    Tarification,
)
from automation_pipeline.fiches.domain.sections.base import Count, Key, TextMap
from automation_pipeline.fiches.domain.times import crm_instant

# PostgreSQL keeps the character NUL neither in texts nor in JSON. An even run of backslashes before is text.
_ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def without_nul(body: bytes) -> bytes:
    """The JSON document without the characters NUL in its texts."""
    # Hardly any has one, and the expression would try each backslash of the others.
    return _ESCAPED_NUL.sub(rb"\1", body) if rb"\u0000" in body else body


def _instant(text: object) -> object:
    return crm_instant(text) if isinstance(text, str) else text


def _instant_or_none(text: object) -> object:
    return None if isinstance(text, str) and not text.strip() else _instant(text)


def _id_text(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return (value.strip() or None) if isinstance(value, str) else value


Instant: TypeAlias = Annotated[datetime, BeforeValidator(_instant)]
MaybeInstant: TypeAlias = Annotated[datetime | None, BeforeValidator(_instant_or_none)]
Name: TypeAlias = Annotated[Key, Field(min_length=1)]
FicheId: TypeAlias = Annotated[Key | None, BeforeValidator(_id_text)]


class Wire(BaseModel):
    """Types are taken at their word; fields that we do not read are left out."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class RecordingPayload(Wire):
    call_id: Name
    start_time: Instant
    duration_seconds: Count
    direction: str
    from_number: str
    to_number: str
    answered: bool
    recording_url: str | None

    def to_recording(self) -> Recording:
        url = (self.recording_url or "").strip()
        name = recording_name(url)
        return Recording(
            call_id=self.call_id,
            url=url,
            started_at=self.start_time,
            duration_seconds=self.duration_seconds,
            direction=self.direction,
            from_number=self.from_number,
            to_number=self.to_number,
            answered=self.answered,
            uuid=name and name.uuid,
        )


class DetailsPayload(Section):
    """`success` false comes without information; the caller decides what that means."""

    success: bool
    message: str
    information: Information | None
    prospect: Prospect | None
    conjoint: Conjoint | None
    enfants: tuple[Enfant, ...]
    mails: tuple[Mail, ...]
    rendez_vous: tuple[RendezVous, ...]
    commentaires: tuple[Commentaire, ...]
    elements_souscription: ElementsSouscription | None
    tarification: tuple[Tarification, ...]
    reclamations: tuple[Reclamation, ...]
    autres_contrats: tuple[AutreContrat, ...]
    documents: tuple[Document, ...]
    alertes: tuple[Alerte, ...]
    raw_sections: TextMap
    recordings: tuple[RecordingPayload, ...]

    def to_details(self, information: Information) -> FicheDetails:
        return FicheDetails(
            information=information,
            prospect=self.prospect,
            conjoint=self.conjoint,
            enfants=self.enfants,
            mails=self.mails,
            rendez_vous=self.rendez_vous,
            commentaires=self.commentaires,
            elements_souscription=self.elements_souscription,
            tarification=self.tarification,
            reclamations=self.reclamations,
            autres_contrats=self.autres_contrats,
            documents=self.documents,
            alertes=self.alertes,
            raw_sections=self.raw_sections,
            recordings=tuple(recording.to_recording() for recording in self.recordings),
            rest=self.rest(),
        )


class RefusalPayload(Wire):
    """What is left of an answer that declines: the sections may be missing."""

    success: Literal[False]
    message: str | None = None


class SummaryPayload(Wire):
    """A fiche of the sales list. Its id comes under one of three names, as text or as number."""

    fiche_id_camel: FicheId = Field(default=None, alias="ficheId")
    fiche_id: FicheId = None
    id: FicheId = None
    cle: str | None
    nom: str
    prenom: str
    telephone: str
    telephone_2: str | None
    email: str
    statut: str
    date_insertion: MaybeInstant
    date_modification: MaybeInstant
    recordings: tuple[RecordingPayload, ...] = ()

    @property
    def known_as(self) -> str | None:
        return self.fiche_id_camel or self.fiche_id or self.id

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if self.known_as is None:
            raise ValueError("has no id")
        return self

    def to_summary(self) -> FicheSummary:
        return FicheSummary(
            fiche_id=str(self.known_as),
            cle=self.cle,
            nom=self.nom,
            prenom=self.prenom,
            telephone=self.telephone,
            telephone_2=self.telephone_2,
            email=self.email,
            statut=self.statut,
            inserted_at=self.date_insertion,
            modified_at=self.date_modification,
            recordings=tuple(recording.to_recording() for recording in self.recordings),
        )


class SalesPayload(Wire):
    """Mostly without `success`; where it is there and false, the fiches mean nothing."""

    success: bool = True
    message: str | None = None
    fiches: tuple[SummaryPayload, ...]
    total: Count

    @property
    def missing(self) -> int:
        """How many fiches the CRM says that there are but did not send."""
        return max(self.total - len(self.fiches), 0)

    def to_sales_list(self, day: date) -> SalesList:
        once: dict[str, FicheSummary] = {}
        for payload in self.fiches:
            fiche = payload.to_summary()
            once.setdefault(fiche.fiche_id, fiche)
        return SalesList(day, listed=len(self.fiches), fiches=tuple(once.values()))
