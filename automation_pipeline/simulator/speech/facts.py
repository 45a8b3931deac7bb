"""What the speakers know: the names, the product and the price, the same as in the CRM's details
where it has them."""

from dataclasses import dataclass
from random import Random
from typing import cast

from automation_pipeline.simulator.crm.contracts import GAMMES, INSURERS, LEVELS
from automation_pipeline.simulator.crm.details import details_json
from automation_pipeline.simulator.crm.formats import Section
from automation_pipeline.simulator.world.people import agents, draw_prospect
from automation_pipeline.simulator.world.values import Agent, Fiche, Prospect

COMPANY = "Clairval Courtage"
MONTHS = (
    "janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre",
    "décembre",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    agent: str
    company: str
    civilite: str
    client: str
    insurer: str
    formula: str
    price: str
    starts_on: str
    debited_on: str
    former_insurer: str
    former_price: str


def facts_of(fiche: Fiche) -> Facts:
    details = details_json(fiche, [], with_mail_devis=False)
    return _facts(
        fiche.agent,
        fiche.prospect,
        _section(details["elements_souscription"]),
        Random(f"{fiche.cle}/facts"),
    )


def invented_facts(rng: Random) -> Facts:
    """For audio that belongs to no fiche."""
    return _facts(rng.choice(rng.choice(agents())), draw_prospect(rng), {}, rng)


def _facts(agent: Agent, prospect: Prospect, subscription: Section, rng: Random) -> Facts:
    product, former = (
        _section(subscription.get("produit")),
        _section(subscription.get("ancien_contrat")),
    )
    insurer, formula = rng.choice(INSURERS), f"{rng.choice(GAMMES)} {rng.choice(LEVELS)}"
    price, former_price = (f"{rng.randrange(2500, 18000) / 100:.2f}" for _ in range(2))
    return Facts(
        agent=agent.nom.title(),
        company=COMPANY,
        civilite=prospect.civilite_text.lower(),
        client=f"{prospect.prenom} {prospect.nom}".title(),
        insurer=str(product.get("groupe_nom", insurer)).title(),
        formula=str(product.get("formule", formula)).title(),
        price=_spoken_price(str(product.get("cotisation", price))),
        starts_on=_spoken_day(
            str(product.get("date_effet", f"01/{rng.randrange(1, 13):02d}/2026"))
        ),
        debited_on=str(_section(subscription.get("paiement")).get("prelevement_le", "10")),
        former_insurer=str(former.get("assureur", rng.choice(INSURERS))).title(),
        former_price=_spoken_price(str(former.get("cotisation", former_price))),
    )


def _section(value: object) -> Section:
    return cast("Section", value) if isinstance(value, dict) else {}


def _spoken_price(amount: str) -> str:
    euros, _, cents = amount.partition(".")
    return f"{euros} euros {cents}"


def _spoken_day(french_day: str) -> str:
    day, month, year = french_day.split("/")
    return f"{'1er' if day == '01' else int(day)} {MONTHS[int(month) - 1]} {year}"
