"""What a company does, under which legal form and with how many people, by its kind."""

from dataclasses import dataclass
from random import Random

from automation_pipeline.simulator.registries.companies import PEOPLE, Activity, Kind, LegalForm
from automation_pipeline.simulator.registries.words import (
    ASSOCIATION_ACTIVITIES,
    ASSOCIATION_FORM,
    COMPANY_ACTIVITIES,
    COMPANY_FORMS,
    FARM_ACTIVITIES,
    FARM_FORMS,
    HEADCOUNTS,
    LIBERAL_ACTIVITIES,
    PUBLIC_ACTIVITY,
    PUBLIC_FORM,
    TRADER_FORM,
    YOUNG_FORMS,
)

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
