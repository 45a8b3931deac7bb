"""INPI's account: its password, the tokens that were given for it, and how often a caller guessed
wrongly."""

import base64
import hmac
import json
import secrets
from collections.abc import Mapping
from enum import StrEnum

from automation_pipeline.simulator.registries.limits import Clock

TOKEN_SECONDS = 3600.0
WRONG_PASSWORDS = 5


class Entry(StrEnum):
    OPEN = "open"
    WRONG = "wrong"
    BLOCKED = "blocked"


class Account:
    """Blocked after so many wrong passwords in a row, until it is forgotten."""

    def __init__(self, username: str, password: str, clock: Clock, wall: Clock) -> None:
        self.token_seconds = TOKEN_SECONDS
        self.logins = 0
        self.wrong_passwords = 0
        self._username, self._password = username, password
        self._clock, self._wall = clock, wall
        self._given_at: dict[str, float] = {}

    @property
    def is_blocked(self) -> bool:
        return self.wrong_passwords >= WRONG_PASSWORDS

    def forget(self) -> None:
        self.logins = self.wrong_passwords = 0
        self._given_at.clear()

    def expire(self) -> int:
        """How many tokens are good no longer."""
        expired = len(self._given_at)
        self._given_at.clear()
        return expired

    def enter(self, username: str, password: str) -> Entry:
        if self.is_blocked:
            return Entry.BLOCKED
        if username != self._username:
            return Entry.WRONG
        if not hmac.compare_digest(password.encode(), self._password.encode()):
            self.wrong_passwords += 1
            return Entry.WRONG
        self.wrong_passwords = 0
        return Entry.OPEN

    def new_token(self) -> str:
        self.logins += 1
        now = int(self._wall())
        claims = {"iat": now, "exp": now + int(self.token_seconds), "username": self._username}
        token = ".".join(
            (_encoded({"alg": "RS256", "typ": "JWT"}), _encoded(claims), secrets.token_urlsafe(32))
        )
        self._given_at[token] = self._clock()
        return token

    def accepts(self, token: str) -> bool:
        given_at = self._given_at.get(token)
        return given_at is not None and self._clock() < given_at + self.token_seconds


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
