"""What this room needs of the outside world."""

from typing import Protocol

from automation_pipeline.fiches.domain.fiche import FicheDetails


class FicheSource(Protocol):
    """The CRM. Attempts, waits and time-outs are the adapter's; an error it raises is final for this call."""

    async def details(self, fiche_id: str) -> FicheDetails:
        """The whole fiche. NotFoundError: the CRM does not know it. TransientError or PermanentError: no answer."""
        ...

    async def check(self) -> None:
        """Nothing, when the CRM answers and accepts us; else an error that says what is wrong."""
        ...
