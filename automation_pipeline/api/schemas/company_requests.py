"""Requests for companies and their refusals as `/v1` shows them: in the words of the contract, without an envelope."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from automation_pipeline.enrichment.domain.views import (
    CompanyRequestView,
    CompanyView,
    DocumentView,
    JobSourceView,
    JobView,
    RetrievalView,
    SourceView,
)
from automation_pipeline.enrichment.domain.vocabulary import Asked, Trigger

DANONE: Mapping[str, object] = {"siren": "552 032 534"}
HEAD_OFFICE: Mapping[str, object] = {"siret": "73282932000074", "strict": True}

# A field is called what it is called in the events.
_BY_NAME = ConfigDict(alias_generator=str)


class CompanyRequestShown(CompanyRequestView):
    model_config = _BY_NAME


class CompanyShown(CompanyView):
    model_config = _BY_NAME


class DocumentShown(DocumentView):
    model_config = _BY_NAME


class RetrievalShown(RetrievalView):
    model_config = _BY_NAME


class RequestShown(BaseModel):
    """A `RequestView`. `enrichment_running`: ask again in a moment."""

    request: CompanyRequestShown
    company: CompanyShown | None
    documents: tuple[DocumentShown, ...]
    source_retrievals: tuple[RetrievalShown, ...]
    enrichment_running: bool
    job_id: str | None


class RequestAnswered(RequestShown):
    """`outcome`: CACHE_HIT, what is known is fresh; ATTACHED, a job was open already; ENQUEUED, one was made."""

    outcome: Asked


class RequestsShown(BaseModel):
    requests: list[CompanyRequestShown]
    count: int
    limit: int
    offset: int


class JobSourceShown(JobSourceView):
    model_config = _BY_NAME


class EnrichmentJobShown(JobView):
    model_config = _BY_NAME
    # Runs have a type of that name too.
    trigger: str = Field(json_schema_extra={"enum": [*Trigger]})  # pyright: ignore[reportIncompatibleVariableOverride]  it is frozen
    sources: tuple[JobSourceShown, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride]  it is frozen


class EnrichmentJobsShown(BaseModel):
    jobs: list[EnrichmentJobShown]
    count: int


class SourceShown(SourceView):
    """`is_configured`: it is called at all. `calls_a_day`: at most so many; null, as many as need be."""

    model_config = _BY_NAME
    is_configured: bool
    calls_a_day: int | None


class SourcesShown(BaseModel):
    sources: list[SourceShown]


class ContractFault(BaseModel):
    field: str = Field(examples=["siren"])
    reason: str = Field(examples=["must be nine digits, not all of them zero"])


class ContractError(BaseModel):
    """`error` names the status, `message` says what is wrong."""

    error: str = Field(examples=["Bad Request"])
    code: str = Field(examples=["INVALID_SIREN_FORMAT"])
    message: str
    details: list[ContractFault]
    correlation_id: str
    request_id: str = Field(description="Of the HTTP request, as in the header X-Request-Id.")
    timestamp: str = Field(examples=["2026-05-04T10:00:03.120Z"])
