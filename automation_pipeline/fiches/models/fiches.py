"""Values of fiches and recordings as the CRM sends them, the outcomes of a fetch, and the port of the CRM."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Protocol, TypeAlias

from pydantic import AfterValidator, Field

from automation_pipeline.core.json_model import DigitsText
from automation_pipeline.fiches.models.days import paris_day, paris_minute
from automation_pipeline.fiches.models.sections import (
    Alerte,
    AutreContrat,
    Commentaire,
    Conjoint,
    Document,
    ElementsSouscription,
    Enfant,
    Information,
    Mail,
    Prospect,
    Reclamation,
    RendezVous,
    Tarification,
)

_NAME = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"-\d\d-\d\d-\d\d-\d\dh\d\d-\d+-\d+\.mp3",
    re.ASCII | re.IGNORECASE,
)

MAX_REQUESTED_FICHES = 10_000


# The fiche ids of a request, without repeats.
RequestedFicheIds: TypeAlias = Annotated[
    tuple[DigitsText, ...],
    Field(min_length=1, max_length=MAX_REQUESTED_FICHES),
    AfterValidator(lambda fiche_ids: tuple(dict.fromkeys(fiche_ids))),
]


def recording_uuid(url: str) -> str | None:
    """The UUID in the file name of the URL. None if the name does not follow the CRM's convention."""
    match = _NAME.fullmatch(url.partition("#")[0].partition("?")[0].rpartition("/")[2])
    return match and match["uuid"].lower()


@dataclass(frozen=True)
class Recording:
    """One call. `url` is empty while the CRM has no audio. `uuid` is part of the URL's file name."""

    call_id: str
    url: str
    started_at: datetime
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool
    uuid: str | None = None

    @property
    def recording_date(self) -> str:
        """DD/MM/YYYY in Paris."""
        return paris_day(self.started_at)

    @property
    def recording_time(self) -> str:
        """HH:MM in Paris."""
        return paris_minute(self.started_at)


@dataclass(frozen=True)
class CrmFiche:
    """The complete answer of the CRM. `rest` contains the fields without a model, nested as in the answer; elements
    of arrays are keyed by their position."""

    information: Information
    prospect: Prospect | None
    conjoint: Conjoint | None
    enfants: tuple[Enfant, ...]
    mails: tuple[Mail, ...]
    rendez_vous: tuple[RendezVous, ...]
    commentaires: tuple[Commentaire, ...]
    elements_souscription: ElementsSouscription | None
    tarification: tuple[Tarification, ...]
    reclamations: tuple[Reclamation, ...]
    autres_contrats: tuple[AutreContrat, ...]
    documents: tuple[Document, ...]
    alertes: tuple[Alerte, ...]
    raw_sections: Mapping[str, str]
    recordings: tuple[Recording, ...]
    rest: Mapping[str, object]

    @property
    def fiche_id(self) -> str:
        return self.information.fiche_id


@dataclass(frozen=True)
class DetailsFetched:
    """Details from the CRM. They are as old as the call at `requested_at`, not as their storage. None means
    now."""

    fiche_id: str
    details: CrmFiche
    requested_at: datetime | None = None


@dataclass(frozen=True)
class DetailsKnown:
    """The stored details are fresh enough. `recordings` is the number of recordings."""

    fiche_id: str
    recordings: int


@dataclass(frozen=True)
class FicheNotFound:
    """The CRM does not know this fiche, which is an outcome and not an error."""

    fiche_id: str


@dataclass(frozen=True)
class FetchFailed:
    fiche_id: str
    error: str
    transient: bool

    @property
    def cause(self) -> str:
        """The error without the id of the fiche, so that equal causes can be counted."""
        return self.error.replace(f"fiche {self.fiche_id}", "a fiche")


FetchOutcome: TypeAlias = DetailsFetched | DetailsKnown | FicheNotFound | FetchFailed


@dataclass(frozen=True)
class SalesListEntry:
    fiche_id: str
    cle: str | None
    nom: str
    prenom: str
    telephone: str
    telephone_2: str | None
    email: str
    statut: str
    inserted_at: datetime | None
    modified_at: datetime | None
    recordings: tuple[Recording, ...]


@dataclass(frozen=True)
class SalesList:
    """The list of a day. `listed` is the number of entries that the CRM sent; `fiches` has each id once, in the
    CRM's order."""

    day: date
    listed: int
    fiches: tuple[SalesListEntry, ...]

    @property
    def duplicates(self) -> int:
        return self.listed - len(self.fiches)


class FicheSource(Protocol):
    """The CRM. The adapter handles retries, waits and timeouts: an error that it raises is final for the
    call."""

    @property
    def at_once(self) -> int:
        """The number of calls that one process may make at the same time."""
        ...

    async def details(self, fiche_id: str) -> CrmFiche:
        """Return the whole fiche.

        Raises NotFoundError if the CRM does not know the fiche, and TransientError or
        PermanentError if it returns no usable answer.
        """
        ...

    async def sales_list(self, day: date) -> SalesList:
        """Return the day's sales with their recordings, each fiche once, in the CRM's order.

        The list is empty only if the CRM answers that nothing was sold. Raises TransientError or
        PermanentError if the CRM returns no usable list.
        """
        ...

    async def check(self) -> None:
        """Raise an AutomationError unless the CRM answers and accepts the credentials."""
        ...
