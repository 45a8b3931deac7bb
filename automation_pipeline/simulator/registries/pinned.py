"""Numbers that are the same in every world: those that documentation and test vectors name."""

from dataclasses import dataclass
from datetime import date

from automation_pipeline.simulator.registries.companies import Activity, Address, Kind, LegalForm
from automation_pipeline.simulator.registries.words import (
    HEAD_OFFICE,
    PARIS,
    PUBLIC_ACTIVITY,
    PUBLIC_FORM,
    SA,
    SAS,
    SASU,
)


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """What is not said is drawn. `place` is the head office's among the establishments there ever
    were."""

    kind: Kind = Kind.COMPANY
    name: str = ""
    legal_form: LegalForm | None = None
    activity: Activity | None = None
    address: Address | None = None
    created_on: date | None = None
    headcount: tuple[str, str] | None = None
    place: int = 1
    open_nics: tuple[str, ...] = ()
    closed_nics: tuple[str, ...] = ()


PINNED = {
    "552032534": Pinned(
        name="DANONE",
        legal_form=SA,
        activity=HEAD_OFFICE,
        address=Address("17", "BOULEVARD", "HAUSSMANN", None, PARIS),
        created_on=date(1955, 1, 1),
        headcount=("42", "GE"),
        place=64,
        closed_nics=("00638",),
    ),
    "356000000": Pinned(
        name="LA POSTE",
        legal_form=SA,
        created_on=date(1991, 1, 1),
        headcount=("53", "GE"),
        place=4,
        open_nics=("49837",),  # right by La Poste's own rule and not by Luhn's
    ),
    "552049447": Pinned(
        name="SOCIETE NATIONALE SNCF", legal_form=SA, headcount=("53", "GE"), place=7627
    ),
    "418166096": Pinned(name="OCTO TECHNOLOGY", legal_form=SAS, headcount=("41", "ETI"), place=6),
    "732829320": Pinned(place=7),
    "880878145": Pinned(legal_form=SASU, place=1),
    "130025265": Pinned(
        kind=Kind.PUBLIC,
        name="DIRECTION INTERMINISTERIELLE DU NUMERIQUE",
        legal_form=PUBLIC_FORM,
        activity=PUBLIC_ACTIVITY,
        created_on=date(2017, 5, 10),
    ),
    "508799673": Pinned(kind=Kind.INCOMPLETE),
    "981418494": Pinned(kind=Kind.INCOMPLETE),
    "123456789": Pinned(kind=Kind.NAMELESS),
    "000000000": Pinned(kind=Kind.UNKNOWN),
}
