"""Put an end to a token, at once and for good."""

from automation_pipeline.access.domain.api_token import ApiToken
from automation_pipeline.access.store import tokens
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def revoke_token(token_id: int, *, database: Database, clock: Clock) -> ApiToken:
    """Safe to repeat. NotFoundError when there is no such token."""
    with database.transaction() as session:
        return tokens.revoke(session, token_id, clock.now())
