"""Concurrent use and revocation of one token in several processes."""

import time
from datetime import datetime, timedelta

from automation_pipeline.access.tokens import authenticate_token, revoke_token
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock

TIMEOUT_SECONDS = 60


def use_or_revoke(url: str, token: str, token_id: int, at: datetime, is_user: bool) -> list[str]:
    database = Database(url)
    try:
        return _use(database, token, at) if is_user else _revoke(database, token, token_id, at)
    finally:
        database.dispose()


def _use(database: Database, token: str, at: datetime) -> list[str]:
    """Authenticate until the token has been refused twice. Returns the result of each call."""
    found: list[str] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while found.count("refused") < 2 and time.monotonic() < deadline:
        caller = authenticate_token(
            token, database=database, now=at + timedelta(minutes=len(found))
        )
        found.append("known" if caller else "refused")
    return found


def _revoke(database: Database, token: str, token_id: int, at: datetime) -> list[str]:
    """Revoke the token. Returns the time of revocation and the result of the next authentication."""
    revoked = revoke_token(token_id, database=database, clock=FakeClock(at))
    after = authenticate_token(token, database=database, now=at)
    return [str(revoked.revoked_at), "known" if after else "refused"]
