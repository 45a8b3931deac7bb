"""The fiches of any day, drawn from a seed. All simulated providers share them."""

import unicodedata
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from random import Random
from zoneinfo import ZoneInfo


class Kind(StrEnum):
    """Special cases of fiches, so that a test can find one."""

    ORDINARY = "ordinary"
    MISSING = "missing"  # in the sales list, 404 in details
    MANY_RECORDINGS = "many_recordings"  # twelve or more
    NO_GROUPE = "no_groupe"
    NO_RECORDINGS = "no_recordings"
    NO_CLE = "no_cle"  # null in the sales list, but present in the details
    NO_URL = "no_url"  # the first recording's URL is null


@dataclass(frozen=True, slots=True)
class Agent:
    """A sales agent, who is the same for every seed."""

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
    """One sale. `groupe` is empty where the CRM has none, although the agent belongs to one."""

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
        """The `cle` in the sales list."""
        return None if self.kind is Kind.NO_CLE else self.cle


GROUPES = ("TEAM R1", "TEAM R2", "TEAM NORD", "TEAM SUD", "TEAM OUEST")
AGENTS_PER_GROUPE = 6

PRENOMS = (
    (2, "Odile"), (1, "Étienne"), (2, "Solène"), (1, "Gaspard"), (2, "Maëlys"), (1, "Théophile"), (2, "Ginette"),
    (1, "Armand"), (2, "Clémence"), (1, "Lucien"), (2, "Yvonne"), (1, "Bastien"), (2, "Hélène"), (1, "Firmin"),
    (2, "Colette"), (1, "Anselme"), (2, "Josiane"), (1, "Raoul"), (2, "Bérénice"), (1, "Octave"),
)  # fmt: skip
NOMS = (
    "VERDELOT", "MARCHENOIR", "BOISJOLI", "TREMBLIN", "HAUTECLAIRE", "PERRIGNON", "LAVANDOU", "CASTELMONT", "DUBREZE",
    "FONTARCE", "GRANDPREAU", "JOLIVAUX", "KERMADEC", "LORMEAU", "MIRANDOL", "NOUAILLE", "ORVEAUX", "PUYLAURENT",
    "QUERVAL", "ROCHEBELLE", "SAINTIGNY", "TOURNEBISE", "VALMORIN", "BRESSUAIRE",
)  # fmt: skip
CIVILITES = {1: "Monsieur", 2: "Madame"}


def agents() -> tuple[tuple[Agent, ...], ...]:
    """The agents of each groupe, in the order of GROUPES."""
    return tuple(
        tuple(_agent(team, seat, groupe) for seat in range(AGENTS_PER_GROUPE))
        for team, groupe in enumerate(GROUPES)
    )


def draw_prospect(rng: Random) -> Prospect:
    civilite, prenom = rng.choice(PRENOMS)
    nom = rng.choice(NOMS)
    return Prospect(
        civilite=civilite,
        civilite_text=CIVILITES[civilite],
        nom=nom,
        prenom=prenom,
        telephone=mobile_number(rng),
        telephone_2=f"019900{rng.randrange(10_000):04d}" if rng.random() < 0.25 else None,
        email=mail_address(prenom, nom),
    )


def mobile_number(rng: Random) -> str:
    return f"063998{rng.randrange(10_000):04d}"


def mail_address(prenom: str, nom: str) -> str:
    plain = unicodedata.normalize("NFKD", f"{prenom}.{nom}").encode("ascii", "ignore").decode()
    return f"{plain.lower()}@exemple.test"


def _agent(team: int, seat: int, groupe: str) -> Agent:
    number = (team + 1) * 100 + seat
    prenom = PRENOMS[(team * 7 + seat * 3) % len(PRENOMS)][1]
    nom = NOMS[(team * 5 + seat) % len(NOMS)]
    return Agent(id=str(number), nom=f"{prenom} {nom}", groupe=groupe, line=f"019900{number:04d}")


USUAL_COUNTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 5)


def draw_recordings(
    rng: Random, kind: Kind, *, fiche_id: str, since: datetime, lines: tuple[str, str]
) -> tuple[Recording, ...]:
    """The calls between `lines` (agent, prospect), one after the other from `since`, which is local
    time."""
    recordings: list[Recording] = []
    local = since
    for number in range(_count(rng, kind)):
        local += timedelta(seconds=rng.randrange(60, 1200), milliseconds=rng.randrange(1000))
        outward = rng.random() < 0.8
        caller, called = lines if outward else lines[::-1]
        answered = rng.random() < 0.95
        recordings.append(
            Recording(
                call_id=f"{fiche_id}{number:02d}",
                started_at=local.astimezone(UTC),
                duration_seconds=rng.randrange(40, 1500) if answered else rng.randrange(1, 30),
                direction="out" if outward else "in",
                from_number=_international(caller),
                to_number=_international(called),
                answered=answered,
                file_name=_file_name(rng, local, _international(caller), _international(called)),
                has_url=not (kind is Kind.NO_URL and number == 0),
            )
        )
    return tuple(recordings)


def _count(rng: Random, kind: Kind) -> int:
    if kind is Kind.NO_RECORDINGS:
        return 0
    return rng.randrange(12, 19) if kind is Kind.MANY_RECORDINGS else rng.choice(USUAL_COUNTS)


def _file_name(rng: Random, local: datetime, caller: str, called: str) -> str:
    name = uuid.UUID(int=rng.getrandbits(128), version=4)
    return f"{name}-{local:%d-%m-%y-%Hh%M}-{caller}-{called}.mp3"


def _international(number: str) -> str:
    return f"33{number[1:]}"


PARIS = ZoneInfo("Europe/Paris")
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2099, 12, 31)
IDS_PER_DAY = 100_000
AGENTS = agents()

WEEKDAY_SHARES = (1.0, 1.0, 0.95, 1.0, 0.9, 0.6, 0.25)  # Monday first
# A day with ten or more fiches has these special kinds. All but the first two occur again in each further sixty fiches.
SPECIAL_KINDS = (
    Kind.MISSING, Kind.MANY_RECORDINGS, Kind.NO_GROUPE, Kind.NO_GROUPE, Kind.NO_RECORDINGS, Kind.NO_RECORDINGS,
    Kind.NO_CLE, Kind.NO_CLE, Kind.NO_URL, Kind.NO_URL,
)  # fmt: skip
SPECIAL_EVERY = 60


@dataclass(frozen=True)
class World:
    """The simulated fiches of all days from 2000 to 2099. With `vary`, there are fewer sales on Saturdays and Sundays,
    and the number of each day varies by up to 15 %. Without it, each day has exactly `fiches_per_day`. Days
    with fewer than ten fiches have ordinary ones only."""

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
        """The fiche with this id, including fiches that the CRM has no details of."""
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
        """The kind of a fiche. Each fiche of the day has its own slot, which depends on the day and determines the
        kind."""
        if count < len(SPECIAL_KINDS):
            return Kind.ORDINARY
        # A stride without a common factor gives each fiche its own slot.
        stride = next(prime for prime in (101, 103, 107) if count % prime)
        slot = (index * stride + day.toordinal() * 31 + self.seed) % count
        if slot < len(SPECIAL_KINDS):
            return SPECIAL_KINDS[slot]
        position = slot % SPECIAL_EVERY
        return SPECIAL_KINDS[position] if 2 <= position < len(SPECIAL_KINDS) else Kind.ORDINARY
