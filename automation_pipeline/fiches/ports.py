"""What this room needs of the outside world."""

from datetime import date
from typing import Protocol

from automation_pipeline.fiches.models.fiches import CrmFiche, SalesList


class FicheSource(Protocol):
    """The CRM. Attempts, waits and time-outs are the adapter's; an error it raises is final for
    this call."""

    @property
    def at_once(self) -> int:
        """How many calls it takes at the same time from one process."""
        ...

    async def details(self, fiche_id: str) -> CrmFiche:
        """The whole fiche. NotFoundError: the CRM does not know it. TransientError or
        PermanentError: no answer."""
        ...

    async def sales_list(self, day: date) -> SalesList:
        """The day's sales with their recordings; empty only if the CRM says that nothing was sold.
        Its fiches have each id once, in the CRM's order. TransientError or PermanentError: no list
        that can be used."""
        ...

    async def check(self) -> None:
        """Nothing, when the CRM answers and accepts us; else an error that says what is wrong."""
        ...
