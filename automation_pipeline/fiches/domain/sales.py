"""A sales list as the CRM tells it: the day's fiches in short. It knows neither groupe nor agent."""

from dataclasses import dataclass
from datetime import date, datetime

from automation_pipeline.fiches.domain.fiche import Recording


@dataclass(frozen=True)
class FicheSummary:
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
    """`listed` counts what the CRM sent; `fiches` has each id once, in its order."""

    day: date
    listed: int
    fiches: tuple[FicheSummary, ...]

    @property
    def duplicates(self) -> int:
        return self.listed - len(self.fiches)
