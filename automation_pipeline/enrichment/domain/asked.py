"""What somebody sends to ask for a company, and what they are told at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.enrichment.domain.identifiers import COMPLAINT, Identifiers, parse_identifiers
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import Asked

_Raw = Annotated[str, Field(max_length=64)]


class RequestInput(JsonModel):
    """At least one of the two. `strict`: a wrong check digit is refused instead of warned of."""

    siren: _Raw | None = Field(default=None, examples=["552032534"])
    siret: _Raw | None = Field(default=None, examples=["55203253400646"])
    strict: bool = False


@dataclass(frozen=True)
class WantedCompany:
    identifiers: Identifiers
    raw: Mapping[str, str | None]


def parse_request(given: Mapping[str, object]) -> WantedCompany:
    """InvalidInputError, or IdentifierError where the numbers are wrong."""
    said = parse(RequestInput, given, COMPLAINT)
    identifiers = parse_identifiers(said.siren, said.siret, strict=said.strict)
    return WantedCompany(identifiers, {"siren": said.siren, "siret": said.siret})


@dataclass(frozen=True, kw_only=True)
class Enriching:
    """`job_id` of the job that is waited for; None: the answer is there."""

    request_id: int
    siren: str
    asked: Asked
    status: EnrichmentStatus
    job_id: int | None = None
    warnings: tuple[str, ...] = ()
