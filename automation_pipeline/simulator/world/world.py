"""The simulated world: any day's fiches as a pure function of (seed, day, place in the day),
nothing stored.

A fiche id is `(days since 2000-01-01) * 100_000 + index`, so an id alone leads back to its fiche:
953000003 is the fourth fiche of 2026-02-03. A call id is the fiche id followed by two digits, the
call's number.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from automation_pipeline.simulator.world.people import GROUPES, agents, draw_prospect
from automation_pipeline.simulator.world.recordings import draw_recordings
from automation_pipeline.simulator.world.values import Fiche, Kind, Recording

PARIS = ZoneInfo("Europe/Paris")
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2099, 12, 31)
IDS_PER_DAY = 100_000
AGENTS = agents()

WEEKDAY_SHARES = (1.0, 1.0, 0.95, 1.0, 0.9, 0.6, 0.25)  # Monday first
# A day of ten fiches or more has these, and all but the first two again in every further sixty.
SPECIAL_KINDS = (
    Kind.MISSING, Kind.MANY_RECORDINGS, Kind.NO_GROUPE, Kind.NO_GROUPE, Kind.NO_RECORDINGS, Kind.NO_RECORDINGS,
    Kind.NO_CLE, Kind.NO_CLE, Kind.NO_URL, Kind.NO_URL,
)  # fmt: skip
SPECIAL_EVERY = 60


@dataclass(frozen=True)
class World:
    """With `vary`, Saturdays and Sundays are quieter and each day is up to 15 % off; without, a day
    has exactly `fiches_per_day`. Days of fewer than ten fiches have ordinary ones only. Nothing
    exists outside 2000..2099."""

    seed: int = 7
    fiches_per_day: int = 24
    vary: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.fiches_per_day <= IDS_PER_DAY // 2:
            raise ValueError(
                f"fiches per day must be between 0 and {IDS_PER_DAY // 2}, not {self.fiches_per_day}"
            )

    def count(self, day: date) -> int:
        if not FIRST_DAY <= day <= LAST_DAY:
            return 0
        if not self.vary:
            return self.fiches_per_day
        deviation = Random(f"{self.seed}/{day}").uniform(0.85, 1.15)
        return round(self.fiches_per_day * WEEKDAY_SHARES[day.weekday()] * deviation)

    def day(self, day: date) -> tuple[Fiche, ...]:
        count = self.count(day)
        return tuple(self._draw(day, index, count) for index in range(count))

    def fiche(self, fiche_id: str) -> Fiche | None:
        """The fiche of this id, the one missing from details included."""
        if not (
            fiche_id.isascii() and fiche_id.isdecimal() and len(fiche_id) <= 10
        ) or fiche_id.startswith("0"):
            return None
        days, index = divmod(int(fiche_id), IDS_PER_DAY)
        day = FIRST_DAY + timedelta(days=days)
        count = self.count(day)
        return self._draw(day, index, count) if index < count else None

    def recording(self, call_id: str) -> Recording | None:
        fiche = self.fiche(call_id[:-2])
        return (
            next((call for call in fiche.recordings if call.call_id == call_id), None)
            if fiche
            else None
        )

    def _draw(self, day: date, index: int, count: int) -> Fiche:
        fiche_id = str((day - FIRST_DAY).days * IDS_PER_DAY + index)
        rng = Random(f"{self.seed}/{fiche_id}")
        kind = self._kind(day, index, count)
        prospect = draw_prospect(rng)
        agent = rng.choice(AGENTS[index % len(GROUPES)])
        inserted_at = datetime(day.year, day.month, day.day, tzinfo=PARIS) + timedelta(
            minutes=rng.randrange(510, 1020)
        )
        return Fiche(
            id=fiche_id,
            sold_on=day,
            kind=kind,
            cle=f"{rng.getrandbits(128):032x}",
            prospect=prospect,
            inserted_at=inserted_at,
            modified_at=inserted_at + timedelta(minutes=rng.randrange(5, 360))
            if rng.random() < 0.4
            else None,
            groupe="" if kind is Kind.NO_GROUPE else agent.groupe,
            agent=agent,
            recordings=draw_recordings(
                rng,
                kind,
                fiche_id=fiche_id,
                since=inserted_at,
                lines=(agent.line, prospect.telephone),
            ),
        )

    def _kind(self, day: date, index: int, count: int) -> Kind:
        """Deals each place of the day one slot, in an order of the day's own; the slot says the
        kind."""
        if count < len(SPECIAL_KINDS):
            return Kind.ORDINARY
        stride = next(
            prime for prime in (101, 103, 107) if count % prime
        )  # no common factor: each slot once
        slot = (index * stride + day.toordinal() * 31 + self.seed) % count
        if slot < len(SPECIAL_KINDS):
            return SPECIAL_KINDS[slot]
        place = slot % SPECIAL_EVERY
        return SPECIAL_KINDS[place] if 2 <= place < len(SPECIAL_KINDS) else Kind.ORDINARY
