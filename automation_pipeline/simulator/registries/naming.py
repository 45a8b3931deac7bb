"""Invented names: of companies, of their owners and of their officers."""

import unicodedata
from dataclasses import dataclass
from random import Random

from automation_pipeline.simulator.registries.companies import Kind, LegalForm, Officer, Person
from automation_pipeline.simulator.registries.numbers import checked
from automation_pipeline.simulator.registries.words import (
    AUDITOR,
    CLUBS,
    DIRECTOR,
    NAMES,
    SA,
    SIGNS,
)
from automation_pipeline.simulator.world.people import NOMS, PRENOMS


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
            Officer(AUDITOR, siren=checked(str(rng.randrange(30_000_000, 99_000_000))), name=firm)
        )
    return tuple(officers)


def _acronymed(name: str, trade_name: str | None, rng: Random) -> Names:
    acronym = "".join(word[0] for word in name.split()) if rng.random() < 0.3 else None
    return Names(name, trade_name, acronym)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().upper()
