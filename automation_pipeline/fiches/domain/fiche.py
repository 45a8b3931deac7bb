"""A fiche as the CRM tells it, and the three ways in which asking for one can end."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True)
class Recording:
    """One call. `url` is empty when the CRM has not made the audio available (yet)."""

    call_id: str
    url: str
    started_at: datetime
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool


@dataclass(frozen=True)
class FicheDetails:
    """`payload` is the CRM's whole answer without its recordings, kept for readers of sections not modelled here."""

    fiche_id: str
    cle: str | None
    groupe: str
    agence_nom: str
    prospect_nom: str | None
    prospect_prenom: str | None
    prospect_email: str | None
    prospect_tel: str | None
    recordings: tuple[Recording, ...]
    payload: Mapping[str, object]


@dataclass(frozen=True)
class DetailsFetched:
    fiche_id: str
    details: FicheDetails


@dataclass(frozen=True)
class FicheNotFound:
    """The CRM does not know this fiche: an end, not an error."""

    fiche_id: str


@dataclass(frozen=True)
class FetchFailed:
    fiche_id: str
    error: str
    transient: bool


FetchOutcome: TypeAlias = DetailsFetched | FicheNotFound | FetchFailed
