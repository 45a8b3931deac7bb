"""Put an end to a token, at once and for good."""

from automation_pipeline.access.domain.api_token import ApiToken
from automation_pipeline.access.domain.handing_out import excess
from automation_pipeline.access.store import tokens
from automation_pipeline.core.access import Caller
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def revoke_token(token_id: int, *, database: Database, clock: Clock, by: Caller | None = None) -> ApiToken:
    """Safe to repeat. NotFoundError when there is no such token, and for one that exceeds whoever it is revoked by; an
    operator at the command line is nobody."""
    with database.transaction() as session:
        token = tokens.revoke(session, token_id, clock.now())
        if by is not None and excess(token, by):
            raise tokens.unknown_token(token_id)
        return token
