"""The values the simulated world is made of. `world.py` draws them; each provider renders them its
own way."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum


class Kind(StrEnum):
    """What is special about a fiche, so that a test can find one."""

    ORDINARY = "ordinary"
    MISSING = "missing"  # in the sales list, 404 in details
    MANY_RECORDINGS = "many_recordings"  # twelve or more
    NO_GROUPE = "no_groupe"
    NO_RECORDINGS = "no_recordings"
    NO_CLE = "no_cle"  # null in the sales list; the details, which refresh it, have one
    NO_URL = "no_url"  # the first recording's URL is null


@dataclass(frozen=True, slots=True)
class Agent:
    """A seller; the same for every seed."""

    id: str
    nom: str
    groupe: str
    line: str


@dataclass(frozen=True, slots=True)
class Prospect:
    civilite: int
    civilite_text: str
    nom: str
    prenom: str
    telephone: str
    telephone_2: str | None
    email: str


@dataclass(frozen=True, slots=True)
class Recording:
    call_id: str
    started_at: datetime
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool
    file_name: str
    has_url: bool


@dataclass(frozen=True, slots=True)
class Fiche:
    """One sale. `groupe` is empty where the CRM has none; the agent belongs to a groupe all the
    same."""

    id: str
    sold_on: date
    kind: Kind
    cle: str
    prospect: Prospect
    inserted_at: datetime
    modified_at: datetime | None
    groupe: str
    agent: Agent
    recordings: tuple[Recording, ...]

    @property
    def listed_cle(self) -> str | None:
        """The cle as the sales list shows it."""
        return None if self.kind is Kind.NO_CLE else self.cle
