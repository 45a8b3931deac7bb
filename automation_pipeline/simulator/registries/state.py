"""The state of the registries: limits, bans, accounts and tokens."""

import base64
import hmac
import json
import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.simulator.registries.companies import Register

Clock = Callable[[], float]


class Window:
    """A sliding window per client. Only admitted calls count; a `limit` of 0 means no limit."""

    def __init__(self, limit: int, seconds: float, clock: Clock = time.monotonic) -> None:
        self.limit, self.seconds = limit, seconds
        self._clock = clock
        self._taken: defaultdict[str, deque[float]] = defaultdict(deque[float])

    def reset(self) -> None:
        self._taken.clear()

    def take(self, client: str = "") -> float:
        """Admit a call and return 0, or return the seconds until the next call may be admitted."""
        if not self.limit:
            self._taken.pop(client, None)
            return 0.0
        taken = self._current(client)
        if len(taken) >= self.limit:
            return taken[-self.limit] + self.seconds - self._clock()
        taken.append(self._clock())
        return 0.0

    def left(self, client: str = "") -> int:
        return max(0, self.limit - len(self._current(client)))

    def empty_in(self, client: str = "") -> float:
        """The seconds until the window is empty."""
        taken = self._current(client)
        return taken[-1] + self.seconds - self._clock() if taken else 0.0

    def _current(self, client: str) -> deque[float]:
        taken, now = self._taken[client], self._clock()
        while taken and taken[0] + self.seconds <= now:
            taken.popleft()
        return taken


class Bans:
    """Bans of clients. A ban lasts for `seconds`, and calls during the ban do not extend it."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self.seconds = seconds
        self.count = 0
        self._clock = clock
        self._since: dict[str, float] = {}

    def reset(self) -> None:
        self.count = 0
        self._since.clear()

    def ban(self, client: str) -> None:
        self.count += 1
        self._since[client] = self._clock()

    def is_banned(self, client: str) -> bool:
        since = self._since.get(client)
        return since is not None and self._clock() < since + self.seconds


def whole_seconds(seconds: float) -> int:
    """The seconds rounded up, for the header Retry-After."""
    return max(1, math.ceil(seconds))


TOKEN_SECONDS = 3600.0
WRONG_PASSWORDS = 5


class LoginResult(StrEnum):
    OPEN = "open"
    WRONG = "wrong"
    BLOCKED = "blocked"


class Account:
    """INPI's account. Too many wrong passwords in a row block it until a reset."""

    def __init__(self, username: str, password: str, clock: Clock, wall: Clock) -> None:
        self.token_seconds = TOKEN_SECONDS
        self.logins = 0
        self.wrong_passwords = 0
        self._username, self._password = username, password
        self._clock, self._wall = clock, wall
        self._issued_at: dict[str, float] = {}

    @property
    def is_blocked(self) -> bool:
        return self.wrong_passwords >= WRONG_PASSWORDS

    def reset(self) -> None:
        self.logins = self.wrong_passwords = 0
        self._issued_at.clear()

    def expire(self) -> int:
        """Invalidate all tokens, and return their number."""
        expired = len(self._issued_at)
        self._issued_at.clear()
        return expired

    def log_in(self, username: str, password: str) -> LoginResult:
        if self.is_blocked:
            return LoginResult.BLOCKED
        if username != self._username:
            return LoginResult.WRONG
        if not hmac.compare_digest(password.encode(), self._password.encode()):
            self.wrong_passwords += 1
            return LoginResult.WRONG
        self.wrong_passwords = 0
        return LoginResult.OPEN

    def new_token(self) -> str:
        self.logins += 1
        now = int(self._wall())
        claims = {"iat": now, "exp": now + int(self.token_seconds), "username": self._username}
        token = ".".join(
            (_encoded({"alg": "RS256", "typ": "JWT"}), _encoded(claims), secrets.token_urlsafe(32))
        )
        self._issued_at[token] = self._clock()
        return token

    def accepts(self, token: str) -> bool:
        issued_at = self._issued_at.get(token)
        return issued_at is not None and self._clock() < issued_at + self.token_seconds


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


SEARCH_PER_SECOND, INPI_PER_MINUTE, INPI_PER_DAY, INPI_LOGINS, ENTREPRISE_PER_MINUTE = (
    7,
    180,
    10_000,
    5,
    250,
)
LOGIN_WINDOW_SECONDS = 30.0
BAN_SECONDS = 600.0


@dataclass(frozen=True)
class Credentials:
    inpi_username: str
    inpi_password: str
    entreprise_token: str


class RegistriesState:
    """Limits apply per client address, INPI's quota per account, and API Entreprise's limit per
    token."""

    def __init__(
        self, seed: int, keys: Credentials, clock: Clock = time.monotonic, wall: Clock = time.time
    ) -> None:
        self.register = Register(seed)
        self.keys = keys
        self.wall = wall
        self.search = Window(SEARCH_PER_SECOND, 1.0, clock)
        self.inpi = Window(INPI_PER_MINUTE, 60.0, clock)
        self.inpi_quota = Window(INPI_PER_DAY, 86_400.0, clock)
        self.inpi_logins = Window(INPI_LOGINS, LOGIN_WINDOW_SECONDS, clock)
        self.inpi_bans = Bans(BAN_SECONDS, clock)
        self.entreprise = Window(ENTREPRISE_PER_MINUTE, 60.0, clock)
        self.account = Account(keys.inpi_username, keys.inpi_password, clock, wall)
        self.young_at_inpi = False

    def reset(self) -> None:
        """Forget calls, bans, tokens and wrong passwords; limits stay."""
        for counted in (
            self.search,
            self.inpi,
            self.inpi_quota,
            self.inpi_logins,
            self.inpi_bans,
            self.entreprise,
        ):
            counted.reset()
        self.account.reset()
