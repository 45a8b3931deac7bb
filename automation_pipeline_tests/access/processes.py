"""What several processes do with one token at once."""

import time
from datetime import datetime, timedelta

from automation_pipeline.access.tokens import authenticate_token, revoke_token
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock

PATIENCE_SECONDS = 60


def use_or_revoke(url: str, token: str, token_id: int, at: datetime, is_user: bool) -> list[str]:
    database = Database(url)
    try:
        return _use(database, token, at) if is_user else _revoke(database, token, token_id, at)
    finally:
        database.dispose()


def _use(database: Database, token: str, at: datetime) -> list[str]:
    """What was found, time after time, until the token was refused, and once more."""
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while found.count("refused") < 2 and time.monotonic() < deadline:
        caller = authenticate_token(
            token, database=database, now=at + timedelta(minutes=len(found))
        )
        found.append("known" if caller else "refused")
    return found


def _revoke(database: Database, token: str, token_id: int, at: datetime) -> list[str]:
    """When it was revoked as this process is told, and whether it was still good right
    afterwards."""
    revoked = revoke_token(token_id, database=database, clock=StandingClock(at))
    after = authenticate_token(token, database=database, now=at)
    return [str(revoked.revoked_at), "known" if after else "refused"]
