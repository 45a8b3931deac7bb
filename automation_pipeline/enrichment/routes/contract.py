"""Models and answers of `/v1`, in the words of the contract."""

from collections.abc import Mapping
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.errors import CORRELATION_ID
from automation_pipeline.api.responses import COMMON, refusals
from automation_pipeline.core.access import Caller
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    Asked,
    CompanyRequestView,
    CompanyView,
    DocumentView,
    EnrichmentTrigger,
    JobSourceView,
    JobView,
    RetrievalView,
    SourceView,
)
from automation_pipeline.enrichment.queries.requests import Requester

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
    """`outcome`: CACHE_HIT, what is known is fresh; ATTACHED, a job was open already; ENQUEUED, one
    was made."""

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
    trigger: str = Field(json_schema_extra={"enum": [*EnrichmentTrigger]})  # pyright: ignore[reportIncompatibleVariableOverride]  it is frozen
    sources: tuple[JobSourceShown, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride]  it is frozen


class EnrichmentJobsShown(BaseModel):
    jobs: list[EnrichmentJobShown]
    count: int


class SourceShown(SourceView):
    """`is_configured`: it is called at all. `calls_a_day`: at most so many; null, as many as need
    be."""

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


Responses = dict[int | str, dict[str, object]]

CORRELATION_HEADER: Mapping[str, object] = {
    "name": CORRELATION_ID,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 128},
    "description": "Stands in the events, the log and Dagster's run of whatever this sets off. Made up when left out.",
}


def by_contract(*statuses: int) -> Responses:
    return {
        status: {**told, "model": ContractError} for status, told in refusals(*statuses).items()
    }


CONTRACT_REFUSALS: Responses = {
    status: {**told, "model": ContractError} for status, told in COMMON.items()
}


def contract_response(
    document: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse(document, status, headers=dict(headers or {}))


def contract_document(model: JsonModel) -> dict[str, object]:
    """As the contract calls its fields."""
    return model.model_dump(mode="json", by_alias=False)


def requester_of(caller: Caller) -> Requester:
    """Whoever belongs to an organisation asks as that."""
    return Requester(
        tenant_id=caller.org_id or DEFAULT_TENANT,
        correlation_id=correlation_id() or uuid4().hex,
        actor=caller.id,
    )


def replay_header(answer: Response) -> Mapping[str, str]:
    """That it was answered before."""
    return {name: answer.headers[name] for name in ("Idempotent-Replay",) if name in answer.headers}
