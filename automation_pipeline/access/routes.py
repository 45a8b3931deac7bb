"""HTTP endpoints of machine tokens, for administrators."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from automation_pipeline.access.models import TokenInput, TokenState, excess_grants, token_document
from automation_pipeline.access.tokens import create_token, list_tokens, revoke_token
from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import IdInPath, Limit, Offset, TheCaller, TheServices
from automation_pipeline.api.responses import Answer, Listing, answer, refusals
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


class TokenShown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    id: str = Field(examples=["3"])
    name: str
    prefix: str = Field(description="How the token begins.")
    state: TokenState
    permissions: list[str]
    scope: Literal["ALL", "GROUP", "SELF"]
    groupes: list[str]
    crm_user_id: str | None
    org_id: str | None = Field(
        description="The organisation that it belongs to, and reaches nothing beyond."
    )
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


class TokenIssued(TokenShown):
    token: str = Field(description="The token itself. It is shown this once.")


router = APIRouter(route_class=GuardedRoute, tags=["tokens"])
PATH = "/api/admin/tokens"


@router.get(PATH, response_model=Listing[TokenShown])
def list_(
    caller: TheCaller,
    services: TheServices,
    *,
    include_inactive: Annotated[
        bool, Query(description="Show expired and revoked ones too.")
    ] = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the tokens that may do no more than the caller, newest first, by how they begin."""
    now = services.clock.now()
    with services.database.reading() as session:
        stored = list_tokens(session, good_at=None if include_inactive else now)
    visible = [token for token in stored if not excess_grants(token, caller)]
    tokens = visible[offset : offset + limit]
    return answer(
        [token_document(token, now) for token in tokens],
        count=len(tokens),
        limit=limit,
        offset=offset,
    )


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[TokenIssued],
    openapi_extra=takes(TokenInput, nightly=NIGHTLY, agent=AGENT),
)
def create(body: TheBody, caller: TheCaller, services: TheServices) -> Response:
    """Make a token that may do no more, and for no longer, than its maker. It is shown this once,
    and only its hash is stored.

    There is no `Idempotency-Key` here: the answer would have to be kept.
    """
    issued = create_token(
        body,
        database=services.database,
        clock=services.clock,
        issuer=caller,
        organisation_exists=has_organisation,
    )
    document = {**token_document(issued.token, services.clock.now()), "token": issued.secret}
    return answer(document, status=201, headers={"Cache-Control": "no-store"})


@router.delete(f"{PATH}/{{token_id}}", response_model=Answer[TokenShown], responses=refusals(404))
def revoke(token_id: IdInPath, caller: TheCaller, services: TheServices) -> Response:
    """Put an end to a token that may do no more than the caller, at once and for good. Safe to
    repeat."""
    token = revoke_token(token_id, database=services.database, clock=services.clock, by=caller)
    return answer(token_document(token, services.clock.now()))
