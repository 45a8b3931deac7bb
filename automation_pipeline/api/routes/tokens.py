"""Machines' tokens, for administrators."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from automation_pipeline.access.domain.api_token import token_document
from automation_pipeline.access.domain.handing_out import excess
from automation_pipeline.access.domain.token_wish import TokenWish
from automation_pipeline.access.stages.create_token import create_token
from automation_pipeline.access.stages.revoke_token import revoke_token
from automation_pipeline.access.store.tokens import list_tokens
from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import IdInPath, Limit, Offset, TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, Listing, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.schemas.tokens import AGENT, NIGHTLY, TokenIssued, TokenShown
from automation_pipeline.org_jobs.store.organisations import has_organisation

router = APIRouter(route_class=GuardedRoute, tags=["tokens"])
PATH = "/api/admin/tokens"


@router.get(PATH, response_model=Listing[TokenShown])
def list_(
    caller: TheCaller,
    services: TheServices,
    *,
    include_inactive: Annotated[bool, Query(description="Show expired and revoked ones too.")] = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the tokens that may do no more than the caller, newest first, by how they begin."""
    now = services.clock.now()
    with services.database.reading() as session:
        stored = list_tokens(session, good_at=None if include_inactive else now)
    tokens = [one for one in stored if not excess(one, caller)][offset : offset + limit]
    return answer([token_document(one, now) for one in tokens], count=len(tokens), limit=limit, offset=offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[TokenIssued],
    openapi_extra=takes(TokenWish, nightly=NIGHTLY, agent=AGENT),
)
def create(body: TheBody, caller: TheCaller, services: TheServices) -> Response:
    """Make a token that may do no more, and for no longer, than its maker. It is shown this once, and only its hash is
    stored.

    There is no `Idempotency-Key` here: the answer would have to be kept.
    """
    issued = create_token(
        body,
        database=services.database,
        clock=services.clock,
        giver=caller,
        knows_organisation=has_organisation,
    )
    document = {**token_document(issued.token, services.clock.now()), "token": issued.secret}
    return answer(document, status=201, headers={"Cache-Control": "no-store"})


@router.delete(f"{PATH}/{{token_id}}", response_model=Answer[TokenShown], responses=refusals(404))
def revoke(token_id: IdInPath, caller: TheCaller, services: TheServices) -> Response:
    """Put an end to a token that may do no more than the caller, at once and for good. Safe to repeat."""
    token = revoke_token(token_id, database=services.database, clock=services.clock, by=caller)
    return answer(token_document(token, services.clock.now()))
