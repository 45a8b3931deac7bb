"""Tell who calls by the token they show. Nothing is remembered: a revoked token is refused from the next call on."""

from contextlib import suppress
from datetime import datetime

from automation_pipeline.access.domain.api_token import ApiToken, TokenState
from automation_pipeline.access.domain.token import is_same_hash, is_token, token_hash
from automation_pipeline.access.store import tokens
from automation_pipeline.core.access import Caller
from automation_pipeline.storage.database import Database


def recognise_token(token_text: str, *, database: Database, now: datetime) -> Caller | None:
    """None alike for what is unknown, expired and revoked."""
    if not is_token(token_text):
        return None
    wanted = token_hash(token_text)
    with database.reading() as session:
        token = tokens.token_of_hash(session, wanted)
    if token is None or not is_same_hash(token.token_hash, wanted) or token.state(now) is not TokenState.ACTIVE:
        return None
    _note_use(token, database, now)
    return token.caller()


def _note_use(token: ApiToken, database: Database, now: datetime) -> None:
    if token.is_use_worth_noting(now):
        # Whatever is wrong with the note, the caller is who they are.
        with suppress(Exception), database.unless_busy() as session:
            tokens.note_use(session, token.id, now)
