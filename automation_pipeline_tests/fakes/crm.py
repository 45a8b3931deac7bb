"""A CRM in memory: `fiches.ports.FicheSource`, run through the same contract as the real client."""

from collections.abc import Iterable
from datetime import UTC, datetime

from automation_pipeline.core.errors import AutomationError, NotFoundError
from automation_pipeline.fiches.domain.fiche import FicheDetails, Recording


def fiche(fiche_id: str, *recordings: Recording, groupe: str = "TEAM R1") -> FicheDetails:
    return FicheDetails(
        fiche_id=fiche_id,
        cle="5f0c77aa91e34b0c8d2e1f6a7b8c9d00",
        groupe=groupe,
        agence_nom="7-TEAMR1",
        prospect_nom="MARTEL",
        prospect_prenom="Odile",
        prospect_email="odile.martel@example.test",
        prospect_tel="0600000001",
        recordings=recordings,
        payload={"success": True, "information": {"fiche_id": fiche_id, "groupe": groupe}},
    )


def recording(call_id: str, url: str = "https://records.example.test/1.mp3") -> Recording:
    return Recording(
        call_id=call_id,
        url=url,
        started_at=datetime(2026, 2, 3, 9, 14, 5, tzinfo=UTC),
        duration_seconds=742,
        direction="out",
        from_number="33100000001",
        to_number="33600000001",
        answered=True,
    )


class FakeFicheSource:
    """Knows the fiches it was given, and no others. `asked` lists the ids in the order of the calls."""

    def __init__(self, fiches: Iterable[FicheDetails] = ()) -> None:
        self.asked: list[str] = []
        self._fiches = {known.fiche_id: known for known in fiches}
        self._once: dict[str, list[AutomationError]] = {}
        self._always: dict[str, AutomationError] = {}
        self._refusal: AutomationError | None = None

    def add(self, *fiches: FicheDetails) -> None:
        self._fiches |= {known.fiche_id: known for known in fiches}

    def remove(self, *fiche_ids: str) -> None:
        for fiche_id in fiche_ids:
            self._fiches.pop(fiche_id, None)

    def fail_once(self, fiche_id: str, *errors: AutomationError) -> None:
        """The next calls for the fiche raise these, one each."""
        self._once.setdefault(fiche_id, []).extend(errors)

    def fail_always(self, fiche_id: str, error: AutomationError) -> None:
        self._always[fiche_id] = error

    def refuse_everything(self, error: AutomationError) -> None:
        self._refusal = error

    async def details(self, fiche_id: str) -> FicheDetails:
        self.asked.append(fiche_id)
        if error := self._error_for(fiche_id):
            raise error
        if fiche_id not in self._fiches:
            raise NotFoundError(f"The CRM does not know fiche {fiche_id}.")
        return self._fiches[fiche_id]

    async def check(self) -> None:
        if self._refusal:
            raise self._refusal

    def _error_for(self, fiche_id: str) -> AutomationError | None:
        once = self._once.get(fiche_id)
        return self._refusal or (once.pop(0) if once else self._always.get(fiche_id))
