"""HTTP endpoints of machine tokens, for administrators."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.access.models import TokenInput, TokenState, excess_grants, token_document
from automation_pipeline.access.tokens import create_token, list_tokens, revoke_token
from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import CallerDep, IdInPath, Limit, Offset, ServicesDep
from automation_pipeline.api.responses import Answer, CamelModel, Listing, answer, refusals
from automation_pipeline.core.json_model import Instant
from automation_pipeline.org_jobs.queries.organisations import has_organisation

NIGHTLY: Mapping[str, object] = {
    "name": "nightly",
    "permissions": ["automation.write", "audits.read"],
    "scope": "GROUP",
    "groupes": ["TEAM R1"],
    "expiresInDays": 90,
}


AGENT: Mapping[str, object] = {
    "name": "agent of acme",
    "orgId": "acme",
    "permissions": ["org-jobs.agents.write"],
    "scope": "ALL",
}


class TokenShown(CamelModel):
    id: str = Field(examples=["3"])
    name: str
    prefix: str = Field(description="The first characters of the token.")
    state: TokenState
    permissions: list[str]
    scope: Literal["ALL", "GROUP", "SELF"]
    groupes: list[str]
    crm_user_id: str | None
    org_id: str | None = Field(
        description="The organisation of the token, which reaches nothing else."
    )
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


class TokenIssued(TokenShown):
    token: str = Field(description="The token itself. Only this response contains it.")


router = APIRouter(route_class=GuardedRoute, tags=["tokens"])
PATH = "/api/admin/tokens"


@router.get(PATH, response_model=Listing[TokenShown])
def list_(
    caller: CallerDep,
    services: ServicesDep,
    *,
    include_inactive: Annotated[
        bool, Query(description="Include expired and revoked tokens.")
    ] = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the tokens that have no more permissions than the caller, newest first."""
    now = services.clock.now()
    stored = services.database.read(list_tokens, active_at=None if include_inactive else now)
    visible = [token for token in stored if not excess_grants(token, caller)]
    tokens = visible[offset : offset + limit]
    return answer(
        [token_document(token, now) for token in tokens],
        count=len(tokens),
        limit=limit,
        offset=offset,
    )


@router.post(PATH, status_code=201, response_model=Answer[TokenIssued])
def create(
    body: Annotated[JsonObject, json_body(TokenInput, nightly=NIGHTLY, agent=AGENT)],
    caller: CallerDep,
    services: ServicesDep,
) -> Response:
    """Create a token whose permissions and expiry do not exceed those of the caller. Only this
    response contains the token; the database stores its hash. This endpoint has no
    `Idempotency-Key`, because the server would have to store the response."""
    issued = create_token(
        body,
        database=services.database,
        clock=services.clock,
        issuer=caller,
        organisation_exists=has_organisation,
    )
    return answer(
        {**token_document(issued.token, services.clock.now()), "token": issued.secret},
        status=201,
        headers={"Cache-Control": "no-store"},
    )


@router.delete(f"{PATH}/{{token_id}}", response_model=Answer[TokenShown], responses=refusals(404))
def revoke(token_id: IdInPath, caller: CallerDep, services: ServicesDep) -> Response:
    """Revoke a token that has no more permissions than the caller, at once and permanently. Safe to repeat."""
    return answer(
        token_document(
            revoke_token(token_id, database=services.database, clock=services.clock, by=caller),
            services.clock.now(),
        )
    )
