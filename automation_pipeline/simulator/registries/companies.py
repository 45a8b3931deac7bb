"""The values a company of the registries is made of. `register.py` draws them; each registry says
them its own way."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class Kind(StrEnum):
    """What is special about a company, so that a test can find one."""

    COMPANY = "company"
    ASSOCIATION = "association"  # in Search only
    PUBLIC = "public"  # a public body: in Search only
    SOLE_TRADER = "sole_trader"
    LIBERAL = "liberal"  # a sole trader who is in no register of commerce
    MASKED = "masked"  # a sole trader who does not want to be shown
    MASKED_COMPANY = "masked_company"  # shows its name and no street
    FARM = "farm"  # an exploitation, in no register of commerce
    CEASED = "ceased"
    YOUNG = "young"  # not yet in INPI's register
    INCOMPLETE = "incomplete"  # INPI knows its number and next to nothing else
    NAMELESS = "nameless"  # known, without name and address
    UNKNOWN = "unknown"


PEOPLE = frozenset({Kind.SOLE_TRADER, Kind.LIBERAL, Kind.MASKED})
NOT_AT_INPI = frozenset({Kind.ASSOCIATION, Kind.PUBLIC})
NOT_IN_RCS = NOT_AT_INPI | {Kind.LIBERAL, Kind.FARM, Kind.NAMELESS}
HIDDEN = frozenset({Kind.MASKED, Kind.MASKED_COMPANY})


@dataclass(frozen=True, slots=True)
class Court:
    """Of commerce, which keeps the register of a city."""

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
    """`code` with its dot."""

    code: str
    label: str
    section: str


@dataclass(frozen=True, slots=True)
class LegalForm:
    """`code` is INSEE's, `register_code` that of the register of commerce."""

    code: str
    label: str
    register_code: str
    role: "Role"


@dataclass(frozen=True, slots=True)
class Role:
    """As Search words it, as INPI numbers it and as the register of commerce shouts it."""

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
    """A person, or the company of that SIREN and name."""

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
    """The last of the establishments is the head office. `owner` is there for sole traders."""

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
