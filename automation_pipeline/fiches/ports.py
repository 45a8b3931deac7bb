"""Ports of fiches: the CRM."""

from datetime import date
from typing import Protocol

from automation_pipeline.fiches.models.fiches import CrmFiche, SalesList


class FicheSource(Protocol):
    """The CRM. The adapter handles retries, waits and timeouts; an error that it raises is final
    for the call."""

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
