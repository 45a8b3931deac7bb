"""Invented people: the sellers and their groupes (fixed), and the prospects (drawn). Numbers come
from the ranges that the French regulator keeps for fiction: 01 99 00 xx xx and 06 39 98 xx xx."""

import unicodedata
from random import Random

from automation_pipeline.simulator.world.values import Agent, Prospect

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
    """The sellers of each groupe, in the order of GROUPES."""
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
