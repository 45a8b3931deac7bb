"""How the routes of `/v1` answer and what they refuse: by the names of the contract."""

from collections.abc import Mapping
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from automation_pipeline.api.contract import CORRELATION_ID
from automation_pipeline.api.envelope import COMMON, refusals
from automation_pipeline.api.schemas.company_requests import ContractError
from automation_pipeline.core.access import Caller
from automation_pipeline.core.correlation import correlation_id
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.enrichment.domain.vocabulary import DEFAULT_TENANT
from automation_pipeline.enrichment.store.requests import Asking

Responses = dict[int | str, dict[str, object]]

CORRELATED: Mapping[str, object] = {
    "name": CORRELATION_ID,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 128},
    "description": "Stands in the events, the log and Dagster's run of whatever this sets off. Made up when left out.",
}


def by_contract(*statuses: int) -> Responses:
    return {status: {**told, "model": ContractError} for status, told in refusals(*statuses).items()}


REFUSED: Responses = {status: {**told, "model": ContractError} for status, told in COMMON.items()}


def shown(document: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(document, status, headers=dict(headers or {}))


def named(model: JsonModel) -> dict[str, object]:
    """As the contract calls its fields."""
    return model.model_dump(mode="json", by_alias=False)


def asking_of(caller: Caller) -> Asking:
    """Whoever belongs to an organisation asks as that."""
    return Asking(
        tenant_id=caller.org_id or DEFAULT_TENANT,
        correlation_id=correlation_id() or uuid4().hex,
        actor=caller.id,
    )


def replayed(answer: Response) -> Mapping[str, str]:
    """That it was answered before."""
    return {name: answer.headers[name] for name in ("Idempotent-Replay",) if name in answer.headers}
