"""The registries as they stand: their limits, who is signed in, and who has lost his patience with
whom."""

import time
from dataclasses import dataclass

from automation_pipeline.simulator.registries.accounts import Account
from automation_pipeline.simulator.registries.limits import Bans, Clock, Window
from automation_pipeline.simulator.registries.register import Register

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
    """Limits are of a client's address, but the quota is of INPI's account and API Entreprise's
    limit of its token."""

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

    def forget(self) -> None:
        """Calls that count, bans, tokens and wrong passwords; limits stay."""
        for counted in (
            self.search,
            self.inpi,
            self.inpi_quota,
            self.inpi_logins,
            self.inpi_bans,
            self.entreprise,
        ):
            counted.forget()
        self.account.forget()
