"""All companies as a pure function of seed and SIREN, nothing stored. Each right number is a
company, or is not."""

import zlib
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count, islice
from random import Random

from automation_pipeline.simulator.registries.companies import (
    HIDDEN,
    PEOPLE,
    Address,
    Company,
    Establishment,
    Kind,
)
from automation_pipeline.simulator.registries.naming import draw_names, draw_officers, draw_person
from automation_pipeline.simulator.registries.numbers import checked, is_siren, nic
from automation_pipeline.simulator.registries.pinned import PINNED, Pinned
from automation_pipeline.simulator.registries.trades import draw_headcount, draw_trade
from automation_pipeline.simulator.registries.words import CITIES, COMPLEMENTS, STREETS

# Of a hundred numbers; the others are ordinary companies.
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
        if pinned := PINNED.get(siren):
            return pinned.kind
        if not is_siren(siren):
            return Kind.UNKNOWN
        slot = zlib.crc32(f"{self._seed}/{siren}".encode()) % 100
        return _SLOTS[slot] if slot < len(_SLOTS) else Kind.COMPANY

    def company(self, siren: str) -> Company | None:
        kind = self.kind(siren)
        return None if kind is Kind.UNKNOWN else _draw(siren, kind, Random(f"{self._seed}/{siren}"))

    def named(self, words: str) -> list[Company]:
        """Those with a name for all worlds that has these words in it."""
        found = (siren for siren, pinned in PINNED.items() if words.upper() in pinned.name)
        return [company for siren in found if (company := self.company(siren))]

    def sirens(self, how_many: int, kind: Kind | None = None) -> list[str]:
        """So many numbers of companies that are there, or of a kind; fewer where there are no
        more."""
        if kind is None or kind in DRAWN_KINDS:
            return list(islice(self._drawn(kind), how_many))
        return [siren for siren, pinned in PINNED.items() if pinned.kind is kind][:how_many]

    def _drawn(self, kind: Kind | None) -> Iterator[str]:
        seen: set[str] = set()
        for place in count():
            base = zlib.crc32(f"{self._seed}/siren/{place}".encode()) % _NUMBERS
            siren = checked(str(_LOWEST + base))
            found = self.kind(siren)
            if (
                siren not in seen
                and siren not in PINNED
                and (found is kind if kind else found is not Kind.UNKNOWN)
            ):
                seen.add(siren)
                yield siren


def _draw(siren: str, kind: Kind, rng: Random) -> Company:
    pinned = PINNED.get(siren, Pinned())
    created_on = pinned.created_on or _born(kind, rng)
    trade = draw_trade(kind, rng)
    establishments = _establishments(siren, kind, pinned, created_on, rng)
    owner = draw_person(rng) if kind in PEOPLE else None
    names = draw_names(kind, owner, establishments[-1].address.city.name, rng)
    headcount, size = pinned.headcount or draw_headcount(kind, rng)
    form = pinned.legal_form or trade.legal_form
    return Company(
        siren=siren,
        kind=kind,
        name=pinned.name or names.name,
        trade_name=None if pinned.name else names.trade_name,
        acronym=None if pinned.name else names.acronym,
        legal_form=form,
        activity=pinned.activity or trade.activity,
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


def _born(kind: Kind, rng: Random) -> date:
    if kind is Kind.YOUNG:
        return FIRST_YOUNG + timedelta(days=rng.randrange((LAST_DAY - FIRST_YOUNG).days))
    return date(1968, 1, 1) + timedelta(days=rng.randrange(57 * 365))


def _establishments(
    siren: str, kind: Kind, pinned: Pinned, created_on: date, rng: Random
) -> tuple[Establishment, ...]:
    """Before the head office come the places it had been at and those it has besides."""
    closed_on = LAST_DAY - timedelta(days=rng.randrange(30, 500)) if kind is Kind.CEASED else None
    besides = [(its_nic, closed_on) for its_nic in pinned.open_nics] + [
        (its_nic, LAST_DAY) for its_nic in pinned.closed_nics
    ]
    moved = 0 if siren in PINNED or kind is Kind.YOUNG else rng.choice((0, 0, 0, 1, 2))
    besides += [
        (nic(siren, place), closed_on or rng.choice((None, LAST_DAY)))
        for place in range(1, 1 + moved)
    ]
    others = [
        Establishment(siren + its_nic, _address(rng), created_on, closed)
        for its_nic, closed in besides
    ]
    head = Establishment(
        siret=siren + nic(siren, pinned.place + moved),
        address=pinned.address or _address(rng),
        opened_on=created_on,
        closed_on=closed_on,
        sign="COMPTOIR" if kind not in HIDDEN and rng.random() < 0.2 else None,
    )
    return (*others, head)


def _address(rng: Random) -> Address:
    street_type, street = rng.choice(STREETS)
    complement = rng.choice(COMPLEMENTS) if rng.random() < 0.2 else None
    return Address(str(rng.randrange(1, 180)), street_type, street, complement, rng.choice(CITIES))
