"""Invented companies. Their numbers, names, trades and addresses are drawn from a seed and the SIREN."""

import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from itertools import count, islice
from random import Random

from automation_pipeline.simulator.world.world import NOMS, PRENOMS


class Kind(StrEnum):
    """Special cases of companies, so that a test can find one."""

    COMPANY = "company"
    ASSOCIATION = "association"  # known to the search only
    PUBLIC = "public"  # a public body, known to the search only
    SOLE_TRADER = "sole_trader"
    LIBERAL = "liberal"  # a sole trader who is not in the register of commerce
    MASKED = "masked"  # a sole trader whose data is not public
    MASKED_COMPANY = "masked_company"  # its name is public, but its street is not
    FARM = "farm"  # not in the register of commerce
    CEASED = "ceased"
    YOUNG = "young"  # not yet in INPI's register
    INCOMPLETE = "incomplete"  # INPI knows little more than its number
    NAMELESS = "nameless"  # a known number without name and address
    UNKNOWN = "unknown"


PEOPLE = frozenset({Kind.SOLE_TRADER, Kind.LIBERAL, Kind.MASKED})
NOT_AT_INPI = frozenset({Kind.ASSOCIATION, Kind.PUBLIC})
NOT_IN_RCS = NOT_AT_INPI | {Kind.LIBERAL, Kind.FARM, Kind.NAMELESS}
HIDDEN = frozenset({Kind.MASKED, Kind.MASKED_COMPANY})


@dataclass(frozen=True, slots=True)
class Court:
    """The commercial court that keeps the register of a city."""

    name: str
    code: str


@dataclass(frozen=True, slots=True)
class City:
    name: str
    postal_code: str
    commune: str
    department: str
    region: str
    court: Court


@dataclass(frozen=True, slots=True)
class Address:
    number: str
    street_type: str
    street: str
    complement: str | None
    city: City

    @property
    def line(self) -> str:
        return f"{self.number} {self.street_type} {self.street}"


@dataclass(frozen=True, slots=True)
class Activity:
    """A NAF activity. `code` contains its dot."""

    code: str
    label: str
    section: str


@dataclass(frozen=True, slots=True)
class LegalForm:
    """`code` is the code of INSEE, `register_code` that of the register of commerce."""

    code: str
    label: str
    register_code: str
    role: "Role"


@dataclass(frozen=True, slots=True)
class Role:
    """The role of an officer: the label of the search, the code of INPI and the label of the register of commerce."""

    label: str
    inpi_code: str
    register_label: str


@dataclass(frozen=True, slots=True)
class Person:
    last_name: str
    first_names: tuple[str, ...]
    born: str  # year and month


@dataclass(frozen=True, slots=True)
class Officer:
    """An officer is a person, or the company with this SIREN and name."""

    role: Role
    person: Person | None = None
    siren: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Establishment:
    siret: str
    address: Address
    opened_on: date
    closed_on: date | None
    sign: str | None = None


@dataclass(frozen=True, slots=True)
class Company:
    """The last establishment is the head office. Only sole traders have an `owner`."""

    siren: str
    kind: Kind
    name: str | None
    trade_name: str | None
    acronym: str | None
    legal_form: LegalForm
    activity: Activity
    created_on: date
    registered_on: date
    ceased_on: date | None
    headcount: str
    size: str | None
    capital: int
    purpose: str
    establishments: tuple[Establishment, ...]
    officers: tuple[Officer, ...]
    owner: Person | None = None

    @property
    def head_office(self) -> Establishment:
        return self.establishments[-1]

    @property
    def is_hidden(self) -> bool:
        return self.kind in HIDDEN

    def establishment(self, siret: str) -> Establishment | None:
        return next((one for one in self.establishments if one.siret == siret), None)


LA_POSTE = "356000000"
SIREN_DIGITS, SIRET_DIGITS = 9, 14


def is_digits(text: str, length: int) -> bool:
    return len(text) == length and text.isascii() and text.isdecimal()


def passes_luhn(number: str) -> bool:
    return _luhn_sum(number) % 10 == 0


def with_check_digit(number: str) -> str:
    """Append the Luhn check digit to the number."""
    return number + str(-_luhn_sum(number + "0") % 10)


def is_siren(text: str) -> bool:
    return is_digits(text, SIREN_DIGITS) and passes_luhn(text)


def is_siret(text: str) -> bool:
    if not is_digits(text, SIRET_DIGITS):
        return False
    return passes_luhn(text) or (text.startswith(LA_POSTE) and sum(map(int, text)) % 5 == 0)


def nic(siren: str, nic_number: int) -> str:
    """The five digits that identify an establishment of a SIREN, with their check digit."""
    return with_check_digit(f"{siren}{nic_number:04d}")[SIREN_DIGITS:]


def vat_number(siren: str) -> str:
    return f"FR{(12 + 3 * (int(siren) % 97)) % 97:02d}{siren}"


def _luhn_sum(number: str) -> int:
    doubled = (
        int(digit) * (1 + nic_number % 2) for nic_number, digit in enumerate(reversed(number))
    )
    return sum(value - 9 if value > 9 else value for value in doubled)


PARIS = City("PARIS", "75009", "75109", "75", "11", Court("PARIS", "7501"))
CITIES = (
    PARIS,
    City("PARIS", "75015", "75115", "75", "11", Court("PARIS", "7501")),
    City("LYON", "69003", "69383", "69", "84", Court("LYON", "6901")),
    City("MARSEILLE", "13008", "13208", "13", "93", Court("MARSEILLE", "1303")),
    City("BORDEAUX", "33000", "33063", "33", "75", Court("BORDEAUX", "3302")),
    City("LILLE", "59800", "59350", "59", "32", Court("LILLE METROPOLE", "5910")),
    City("NANTES", "44000", "44109", "44", "52", Court("NANTES", "4401")),
    City("TOULOUSE", "31000", "31555", "31", "76", Court("TOULOUSE", "3102")),
    City("RENNES", "35000", "35238", "35", "53", Court("RENNES", "3501")),
    City("STRASBOURG", "67000", "67482", "67", "44", Court("STRASBOURG", "6752")),
    City("SAINT-DENIS", "93200", "93066", "93", "11", Court("BOBIGNY", "9301")),
    City("AIX-LES-BAINS", "73100", "73008", "73", "84", Court("CHAMBERY", "7301")),
)
STREETS = (
    ("RUE", "DES LILAS"),
    ("RUE", "DE L'ABBE GREGOIRE"),
    ("AVENUE", "JEAN JAURES"),
    ("AVENUE", "DE LA REPUBLIQUE"),
    ("BOULEVARD", "VICTOR HUGO"),
    ("PLACE", "DU MARCHE"),
    ("CHEMIN", "DES VIGNES"),
    ("QUAI", "DE LA FOSSE"),
    ("IMPASSE", "DU MOULIN"),
    ("ROUTE", "DE PARIS"),
)
COMPLEMENTS = ("BATIMENT B", "ZI DES PRES", "ESC 2 ETAGE 3", "CENTRE COMMERCIAL LES HALLES")
NAMES = (
    "ETABLISSEMENTS {}",
    "{} CONSEIL",
    "{} ET FILS",
    "ATELIERS {}",
    "{} DISTRIBUTION",
    "MAISON {}",
    "GROUPE {}",
)
SIGNS = ("L'ATELIER", "CHEZ {}", "LE COMPTOIR {}", "LA BOUTIQUE")
CLUBS = ("LES AMIS DE {}", "UNION SPORTIVE DE {}", "COMITE DES FETES DE {}", "CHORALE DE {}")

PRESIDENT = Role("Président de SAS", "73", "PRESIDENT")
MANAGER = Role("Gérant", "30", "GERANT")
CHAIR = Role("Président du conseil d'administration", "51", "PRESIDENT DU CONSEIL D'ADMINISTRATION")
DIRECTOR = Role("Directeur Général", "53", "DIRECTEUR GENERAL")
AUDITOR = Role("Commissaire aux comptes titulaire", "71", "COMMISSAIRE AUX COMPTES TITULAIRE")
TRADER = Role("Entrepreneur individuel", "28", "EXPLOITANT")

SAS = LegalForm("5710", "Société par actions simplifiée", "SASh", PRESIDENT)
SARL = LegalForm("5499", "Société à responsabilité limitée", "SARL", MANAGER)
SA = LegalForm("5599", "Société anonyme à conseil d'administration", "SAca", CHAIR)
SASU = LegalForm("5720", "Société par actions simplifiée à associé unique", "SASu", PRESIDENT)
EURL = LegalForm("5498", "Société à responsabilité limitée à associé unique", "EURL", MANAGER)
COMPANY_FORMS = (
    SAS,
    SAS,
    SARL,
    SARL,
    SASU,
    EURL,
    SA,
    LegalForm("6540", "Société civile immobilière", "SCIm", MANAGER),
)
YOUNG_FORMS = (SAS, SASU, EURL)
FARM_FORMS = (
    LegalForm("6533", "Groupement agricole d'exploitation en commun", "GAEC", MANAGER),
    LegalForm("6598", "Exploitation agricole à responsabilité limitée", "EARL", MANAGER),
)
ASSOCIATION_FORM = LegalForm(
    "9220", "Association déclarée", "ASSO", Role("Président", "40", "PRESIDENT")
)
PUBLIC_FORM = LegalForm("7120", "Service central d'un ministère", "ADMI", DIRECTOR)
TRADER_FORM = LegalForm("1000", "Entrepreneur individuel", "PPco", TRADER)

HEAD_OFFICE = Activity("70.10Z", "Activités des sièges sociaux", "M")
COMPANY_ACTIVITIES = (
    Activity("62.01Z", "Programmation informatique", "J"),
    Activity("70.22Z", "Conseil pour les affaires et autres conseils de gestion", "M"),
    Activity("47.71Z", "Commerce de détail d'habillement en magasin spécialisé", "G"),
    Activity("56.10A", "Restauration traditionnelle", "I"),
    Activity("43.22A", "Travaux d'installation d'eau et de gaz en tous locaux", "F"),
    Activity("49.41A", "Transports routiers de fret interurbains", "H"),
    Activity("68.20B", "Location de terrains et d'autres biens immobiliers", "L"),
    Activity("10.71C", "Boulangerie et boulangerie-pâtisserie", "C"),
    Activity("46.90Z", "Commerce de gros non spécialisé", "G"),
    Activity("73.11Z", "Activités des agences de publicité", "M"),
)
LIBERAL_ACTIVITIES = (
    Activity("86.21Z", "Activité des médecins généralistes", "Q"),
    Activity("69.10Z", "Activités juridiques", "M"),
    Activity("71.11Z", "Activités d'architecture", "M"),
)
ASSOCIATION_ACTIVITIES = (
    Activity("94.99Z", "Autres organisations fonctionnant par adhésion volontaire", "S"),
    Activity("93.12Z", "Activités de clubs de sports", "R"),
    Activity("85.59B", "Autres enseignements", "P"),
)
FARM_ACTIVITIES = (
    Activity("01.11Z", "Culture de céréales, de légumineuses et de graines oléagineuses", "A"),
    Activity("01.41Z", "Élevage de vaches laitières", "A"),
    Activity("01.21Z", "Culture de la vigne", "A"),
)
PUBLIC_ACTIVITY = Activity("84.11Z", "Administration publique générale", "O")

# Headcount codes with the size class of the company. Small companies are the most frequent.
HEADCOUNTS = (
    ("NN", "PME"), ("NN", "PME"), ("00", "PME"), ("01", "PME"), ("01", "PME"), ("02", "PME"), ("03", "PME"),
    ("11", "PME"), ("12", "PME"), ("21", "PME"), ("32", "ETI"), ("41", "ETI"), ("51", "GE"),
)  # fmt: skip


@dataclass(frozen=True)
class Names:
    name: str | None
    trade_name: str | None
    acronym: str | None


def draw_names(kind: Kind, owner: Person | None, city: str, rng: Random) -> Names:
    if kind is Kind.NAMELESS:
        return Names(None, None, None)
    family = rng.choice(NOMS)
    if owner:
        sign = rng.choice(SIGNS).format(family) if rng.random() < 0.4 else None
        return Names(f"{owner.first_names[0]} {owner.last_name}", sign, None)
    if kind is Kind.ASSOCIATION:
        return _acronymed(rng.choice(CLUBS).format(city), None, rng)
    name = rng.choice(NAMES).format(family)
    if rng.random() < 0.3:
        name = f"{name} {rng.choice(NOMS)}"
    return _acronymed(name, rng.choice(SIGNS).format(family) if rng.random() < 0.3 else None, rng)


def draw_person(rng: Random) -> Person:
    first = tuple(_plain(name) for _, name in rng.sample(PRENOMS, rng.choice((1, 1, 2))))
    return Person(
        rng.choice(NOMS), first, f"{rng.randrange(1950, 2004)}-{rng.randrange(1, 13):02d}"
    )


def draw_officers(form: LegalForm, owner: Person | None, rng: Random) -> tuple[Officer, ...]:
    if owner:
        return (Officer(form.role, owner),)
    officers = [Officer(form.role, draw_person(rng))]
    if form is SA or rng.random() < 0.2:
        officers.append(Officer(DIRECTOR, draw_person(rng)))
    if form is SA or rng.random() < 0.2:
        firm = f"{rng.choice(NOMS)} AUDIT"
        officers.append(
            Officer(
                AUDITOR,
                siren=with_check_digit(str(rng.randrange(30_000_000, 99_000_000))),
                name=firm,
            )
        )
    return tuple(officers)


def _acronymed(name: str, trade_name: str | None, rng: Random) -> Names:
    acronym = "".join(word[0] for word in name.split()) if rng.random() < 0.3 else None
    return Names(name, trade_name, acronym)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().upper()


_TRADES: dict[Kind, tuple[tuple[LegalForm, ...], tuple[Activity, ...]]] = {
    Kind.ASSOCIATION: ((ASSOCIATION_FORM,), ASSOCIATION_ACTIVITIES),
    Kind.PUBLIC: ((PUBLIC_FORM,), (PUBLIC_ACTIVITY,)),
    Kind.SOLE_TRADER: ((TRADER_FORM,), COMPANY_ACTIVITIES),
    Kind.MASKED: ((TRADER_FORM,), COMPANY_ACTIVITIES),
    Kind.LIBERAL: ((TRADER_FORM,), LIBERAL_ACTIVITIES),
    Kind.FARM: (FARM_FORMS, FARM_ACTIVITIES),
    Kind.YOUNG: (YOUNG_FORMS, COMPANY_ACTIVITIES),
}
_WITHOUT_STAFF = PEOPLE | {Kind.YOUNG, Kind.CEASED, Kind.NAMELESS}


@dataclass(frozen=True)
class Trade:
    legal_form: LegalForm
    activity: Activity


def draw_trade(kind: Kind, rng: Random) -> Trade:
    forms, activities = _TRADES.get(kind, (COMPANY_FORMS, COMPANY_ACTIVITIES))
    return Trade(rng.choice(forms), rng.choice(activities))


def draw_headcount(kind: Kind, rng: Random) -> tuple[str, str | None]:
    return ("NN", None) if kind in _WITHOUT_STAFF else rng.choice(HEADCOUNTS)


@dataclass(frozen=True, kw_only=True)
class FixedCompany:
    """Data of a company that is the same for every seed. Missing values are drawn. `nic_number` is
    the number of the head office among all establishments that the company ever had."""

    kind: Kind = Kind.COMPANY
    name: str = ""
    legal_form: LegalForm | None = None
    activity: Activity | None = None
    address: Address | None = None
    created_on: date | None = None
    headcount: tuple[str, str] | None = None
    nic_number: int = 1
    open_nics: tuple[str, ...] = ()
    closed_nics: tuple[str, ...] = ()


FIXED_COMPANIES = {
    "552032534": FixedCompany(
        name="DANONE",
        legal_form=SA,
        activity=HEAD_OFFICE,
        address=Address("17", "BOULEVARD", "HAUSSMANN", None, PARIS),
        created_on=date(1955, 1, 1),
        headcount=("42", "GE"),
        nic_number=64,
        closed_nics=("00638",),
    ),
    "356000000": FixedCompany(
        name="LA POSTE",
        legal_form=SA,
        created_on=date(1991, 1, 1),
        headcount=("53", "GE"),
        nic_number=4,
        open_nics=("49837",),  # valid by the rule of La Poste, but not by Luhn's
    ),
    "552049447": FixedCompany(
        name="SOCIETE NATIONALE SNCF", legal_form=SA, headcount=("53", "GE"), nic_number=7627
    ),
    "418166096": FixedCompany(
        name="OCTO TECHNOLOGY", legal_form=SAS, headcount=("41", "ETI"), nic_number=6
    ),
    "732829320": FixedCompany(nic_number=7),
    "880878145": FixedCompany(legal_form=SASU, nic_number=1),
    "130025265": FixedCompany(
        kind=Kind.PUBLIC,
        name="DIRECTION INTERMINISTERIELLE DU NUMERIQUE",
        legal_form=PUBLIC_FORM,
        activity=PUBLIC_ACTIVITY,
        created_on=date(2017, 5, 10),
    ),
    "508799673": FixedCompany(kind=Kind.INCOMPLETE),
    "981418494": FixedCompany(kind=Kind.INCOMPLETE),
    "123456789": FixedCompany(kind=Kind.NAMELESS),
    "000000000": FixedCompany(kind=Kind.UNKNOWN),
}


# The share of each kind in a hundred numbers. The others are ordinary companies.
SHARES = (
    (Kind.UNKNOWN, 10), (Kind.ASSOCIATION, 9), (Kind.SOLE_TRADER, 10), (Kind.LIBERAL, 5), (Kind.MASKED, 5),
    (Kind.MASKED_COMPANY, 3), (Kind.FARM, 4), (Kind.CEASED, 7), (Kind.YOUNG, 5),
)  # fmt: skip
_SLOTS = tuple(kind for kind, share in SHARES for _ in range(share))
DRAWN_KINDS = frozenset({*_SLOTS, Kind.COMPANY})
FIRST_YOUNG, LAST_DAY = date(2026, 1, 5), date(2026, 6, 30)
_LOWEST, _NUMBERS = 30_000_000, 69_000_000  # the first eight digits


class Register:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def kind(self, siren: str) -> Kind:
        if fixed := FIXED_COMPANIES.get(siren):
            return fixed.kind
        if not is_siren(siren):
            return Kind.UNKNOWN
        slot = zlib.crc32(f"{self._seed}/{siren}".encode()) % 100
        return _SLOTS[slot] if slot < len(_SLOTS) else Kind.COMPANY

    def company(self, siren: str) -> Company | None:
        kind = self.kind(siren)
        return None if kind is Kind.UNKNOWN else _draw(siren, kind, Random(f"{self._seed}/{siren}"))

    def search_by_name(self, words: str) -> list[Company]:
        """Return the companies with a fixed name that contains these words."""
        found = (siren for siren, fixed in FIXED_COMPANIES.items() if words.upper() in fixed.name)
        return [company for siren in found if (company := self.company(siren))]

    def sirens(self, how_many: int, kind: Kind | None = None) -> list[str]:
        """Return this many SIRENs of known companies, or of companies of this kind. Fewer if there are no
        more."""
        if kind is None or kind in DRAWN_KINDS:
            return list(islice(self._drawn(kind), how_many))
        return [siren for siren, fixed in FIXED_COMPANIES.items() if fixed.kind is kind][:how_many]

    def _drawn(self, kind: Kind | None) -> Iterator[str]:
        seen: set[str] = set()
        for nic_number in count():
            base = zlib.crc32(f"{self._seed}/siren/{nic_number}".encode()) % _NUMBERS
            siren = with_check_digit(str(_LOWEST + base))
            found = self.kind(siren)
            if (
                siren not in seen
                and siren not in FIXED_COMPANIES
                and (found is kind if kind else found is not Kind.UNKNOWN)
            ):
                seen.add(siren)
                yield siren


def _draw(siren: str, kind: Kind, rng: Random) -> Company:
    fixed = FIXED_COMPANIES.get(siren, FixedCompany())
    created_on = fixed.created_on or _creation_date(kind, rng)
    trade = draw_trade(kind, rng)
    establishments = _establishments(siren, kind, fixed, created_on, rng)
    owner = draw_person(rng) if kind in PEOPLE else None
    names = draw_names(kind, owner, establishments[-1].address.city.name, rng)
    headcount, size = fixed.headcount or draw_headcount(kind, rng)
    form = fixed.legal_form or trade.legal_form
    return Company(
        siren=siren,
        kind=kind,
        name=fixed.name or names.name,
        trade_name=None if fixed.name else names.trade_name,
        acronym=None if fixed.name else names.acronym,
        legal_form=form,
        activity=fixed.activity or trade.activity,
        created_on=created_on,
        registered_on=created_on + timedelta(days=rng.randrange(3, 21)),
        ceased_on=establishments[-1].closed_on,
        headcount=headcount,
        size=size,
        capital=rng.choice((1, 1_000, 5_000, 7_500, 37_000, 120_000)),
        purpose=trade.activity.label,
        establishments=establishments,
        officers=() if kind is Kind.NAMELESS else draw_officers(form, owner, rng),
        owner=owner,
    )


def _creation_date(kind: Kind, rng: Random) -> date:
    if kind is Kind.YOUNG:
        return FIRST_YOUNG + timedelta(days=rng.randrange((LAST_DAY - FIRST_YOUNG).days))
    return date(1968, 1, 1) + timedelta(days=rng.randrange(57 * 365))


def _establishments(
    siren: str, kind: Kind, fixed: FixedCompany, created_on: date, rng: Random
) -> tuple[Establishment, ...]:
    """The establishments of a company. The last one is the head office; the others are former head offices
    and branches."""
    closed_on = LAST_DAY - timedelta(days=rng.randrange(30, 500)) if kind is Kind.CEASED else None
    codes = [(nic_code, closed_on) for nic_code in fixed.open_nics] + [
        (nic_code, LAST_DAY) for nic_code in fixed.closed_nics
    ]
    moved = 0 if siren in FIXED_COMPANIES or kind is Kind.YOUNG else rng.choice((0, 0, 0, 1, 2))
    codes += [
        (nic(siren, nic_number), closed_on or rng.choice((None, LAST_DAY)))
        for nic_number in range(1, 1 + moved)
    ]
    others = [
        Establishment(siren + nic_code, _address(rng), created_on, closed)
        for nic_code, closed in codes
    ]
    head = Establishment(
        siret=siren + nic(siren, fixed.nic_number + moved),
        address=fixed.address or _address(rng),
        opened_on=created_on,
        closed_on=closed_on,
        sign="COMPTOIR" if kind not in HIDDEN and rng.random() < 0.2 else None,
    )
    return (*others, head)


def _address(rng: Random) -> Address:
    street_type, street = rng.choice(STREETS)
    complement = rng.choice(COMPLEMENTS) if rng.random() < 0.2 else None
    return Address(str(rng.randrange(1, 180)), street_type, street, complement, rng.choice(CITIES))
