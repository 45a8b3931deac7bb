"""The CRM's answers as they come over the wire, checked and turned into the values of `fiches.domain`."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from automation_pipeline.fiches.domain.fiche import FicheDetails, Recording

# PostgreSQL keeps the character NUL neither in texts nor in JSON. An even run of backslashes before is text.
_ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def without_nul(body: bytes) -> bytes:
    """The JSON document without the characters NUL in its texts."""
    return _ESCAPED_NUL.sub(rb"\1", body)


def _instant(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("has no time zone")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the years that there are") from None


Seconds = Annotated[float, Field(ge=0, le=2**31 - 1, allow_inf_nan=False)]


class Wire(BaseModel):
    """Types are taken at their word; fields that we do not read are kept."""

    model_config = ConfigDict(strict=True, extra="allow")


class RecordingPayload(Wire):
    call_id: str = Field(min_length=1)
    start_time: Annotated[datetime, AfterValidator(_instant)]
    duration_seconds: Seconds
    direction: str
    from_number: str
    to_number: str
    answered: bool
    recording_url: str | None

    def to_recording(self) -> Recording:
        return Recording(
            call_id=self.call_id,
            url=self.recording_url or "",
            started_at=self.start_time,
            duration_seconds=round(self.duration_seconds),
            direction=self.direction,
            from_number=self.from_number,
            to_number=self.to_number,
            answered=self.answered,
        )


class InformationPayload(Wire):
    fiche_id: str
    cle: str | None
    groupe: str
    agence_nom: str


class ProspectPayload(Wire):
    nom: str
    prenom: str
    telephone: str | None
    mail: str | None


class DetailsPayload(Wire):
    """`success` false comes without information; the caller decides what that means."""

    success: bool
    message: str
    information: InformationPayload | None
    prospect: ProspectPayload | None
    recordings: tuple[RecordingPayload, ...]

    def to_details(self, information: InformationPayload) -> FicheDetails:
        prospect = self.prospect
        return FicheDetails(
            fiche_id=information.fiche_id,
            cle=information.cle,
            groupe=information.groupe,
            agence_nom=information.agence_nom,
            prospect_nom=prospect and prospect.nom,
            prospect_prenom=prospect and prospect.prenom,
            prospect_email=prospect and prospect.mail,
            prospect_tel=prospect and prospect.telephone,
            recordings=tuple(recording.to_recording() for recording in self.recordings),
            payload=self.model_dump(mode="json", exclude={"recordings"}),
        )
