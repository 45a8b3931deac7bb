"""Every configured control point once, whatever the model returned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import GatingOptions, Timeline
from automation_pipeline.audits.models.findings import (
    Conforme,
    ControlPoint,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.rules.answers import reconcile
from automation_pipeline.audits.rules.verdicts import gate
from automation_pipeline_tests.audits.rules.strategies import finding, findings, texts

P, H, A, N = Statut.PRESENT, Statut.PARTIEL, Statut.ABSENT, Statut.NON_APPLICABLE
NAME, RECORDED = "Le conseiller donne son nom", "L'enregistrement est annoncé"
OBJECT = "Le droit d'opposition au démarchage est mentionné"
LONG = (
    "Le conseiller rappelle les garanties principales du contrat, les délais de carence et les exclusions, vérifie "
    "que le client a compris le montant de la cotisation, la date d'effet, et comment exercer son droit de renonciation"
)


def answers(*returned: tuple[str, Statut]) -> StepFinding:
    return finding(*(
        ControlPoint(point=text, statut=statut, commentaire=f"réponse {number}")
        for number, (text, statut) in enumerate(returned)
    ))  # fmt: skip


def matched(configured: tuple[str, ...], *returned: tuple[str, Statut]) -> list[int | None]:
    """Which answer each configured point got."""
    points = reconcile(answers(*returned), configured).finding.points
    assert [point.point for point in points] == list(configured)
    numbers = [point.commentaire.removeprefix("réponse ") for point in points]
    return [int(number) if number.isdigit() else None for number in numbers]


@pytest.mark.parametrize(
    "text",
    [
        NAME,
        f"  {NAME}\n",
        "LE CONSEILLER DONNE SON NOM.",
        f"1. {NAME}",
        f"1) {NAME}",
        f"(1) {NAME}",
        f"12 - {NAME}",
        f"1.2. {NAME}",
        f"Point 1 : {NAME}",
        f"- {NAME}",
        f"Point de contrôle 1 : {NAME}",
        f"{NAME} et son prénom, clairement",
        "donne son nom",
        "Le conseiler donne son noms",
    ],
)
def test_a_point_is_known_by_its_words(text: str) -> None:
    assert matched((RECORDED, NAME), (text, P)) == [None, 0]


@pytest.mark.parametrize(
    "text",
    ["", "…", "1.", "nom", "le", "son nomade", "Le client donne son accord", RECORDED[:3], "2"],
)
def test_a_point_that_is_not_clearly_like_one_is_unknown(text: str) -> None:
    result = reconcile(answers((text, P)), (NAME, OBJECT))
    assert (result.missing, result.unknown) == (2, 1)
    assert [point.statut for point in result.finding.points] == [A, A]


@pytest.mark.parametrize(
    ("configured", "returned"),
    [
        (
            "Le délai de renonciation de 14 jours est annoncé",
            "Le délai de renonciation de 30 jours est annoncé",
        ),
        (
            "Le délai de renonciation de trente jours est dit",
            "Le délai de renonciation de trois jours est dit",
        ),
        (
            "Un appel de 10 à 20 minutes est proposé au client",
            "Un appel de 20 à 10 minutes est proposé au client",
        ),
        (
            "Le conseiller coupe la parole du client",
            "Le conseiller ne coupe pas la parole du client",
        ),
        (
            "Le client n'a aucun crédit en cours chez nous",
            "Le client a un crédit en cours chez nous",
        ),
        (
            "Contrat signé avec délai de carence annoncé",
            "Contrat signé avec délai de carence jamais annoncé",
        ),
        (
            "Le conseiller conclut sans frais de dossier",
            "Le conseiller conclut avec frais de dossier",
        ),
        ("Accord du client", "Non accord du client"),
        ("Enregistrement", "Enregistrement annoncé au début de l'appel"),
        ("Nom", "Nom annoncé"),
        ("Le conseiller donne son nom, celui de sa société et son numéro ORIAS", "donne son nom"),
        ("son nom", "Le conseiller donne son nom"),
    ],
)
def test_points_of_another_meaning_are_not_taken_for_each_other(
    configured: str, returned: str
) -> None:
    assert matched((configured,), (returned, P)) == [None]
    assert matched((returned,), (configured, P)) == [None]


@pytest.mark.parametrize(
    ("configured", "returned"),
    [
        (
            "Le délai de 14 jours est annoncé au client",
            "Le delai de 14 jours est annoncer au client",
        ),
        (
            "Le conseiller n'a coupé aucune parole",
            "Le conseiller n'a coupé aucune parole du client",
        ),
        ("Le client ne paie pas de frais de dossier", "Le client ne paye pas de frais de dossier"),
        ("donne son nom", "Le conseiller donne son nom"),
    ],
)
def test_points_of_one_meaning_are(configured: str, returned: str) -> None:
    assert matched((configured,), (returned, P)) == [0]
    assert matched((returned,), (configured, P)) == [0]


def test_long_points_with_a_slip_are_alike() -> None:
    assert len(LONG) > 200
    assert matched(
        (LONG, NAME), (LONG.replace("rappelle", "rapelle").replace("exercer", "utiliser"), P)
    ) == [0, None]


@pytest.mark.parametrize(
    ("configured", "returned", "expected"),
    [
        ((NAME, RECORDED), [(RECORDED, P), (NAME, P)], [1, 0]),
        ((NAME, RECORDED), [(f"2. {RECORDED}", P), (f"1. {NAME}", P)], [1, 0]),
        (("Nom", "Nom et prénom"), [("Nom et prénom", P), ("Nom", P)], [1, 0]),
        (
            ("Nom du client", "Nom du conseiller"),
            [("Nom du conseillé", P), ("Nom du clients", P)],
            [1, 0],
        ),
        (
            ("Montant < 100 €", "Montant > 100 €"),
            [("Montant > 100 €", P), ("Montant < 100 €", P)],
            [1, 0],
        ),
        ((NAME, NAME), [(NAME, P), (NAME, A)], [0, 1]),
        ((NAME, NAME), [(NAME, P)], [0, None]),
        ((), [(NAME, P)], []),
        (("!!!",), [("???", P)], [None]),
    ],
)
def test_the_best_pairs_are_made(
    configured: tuple[str, ...], returned: list[tuple[str, Statut]], expected: list[int | None]
) -> None:
    assert matched(configured, *returned) == expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([(NAME, P), (NAME, A)], 1),
        ([(NAME, A), (NAME, P)], 0),
        ([(NAME, P), (NAME, H)], 1),
        ([(NAME, N), (NAME, P)], 1),
        ([(NAME, H), (NAME, A), (NAME, A)], 1),
        ([(f"1. {NAME}", P), (f"1. {NAME}", A)], 1),
        ([(f"{NAME} !", A), (NAME, P)], 1),  # its own words first
        ([(f"1. {NAME}", A), (NAME, P)], 1),
    ],
)
def test_of_duplicates_the_strictest_stays(
    returned: list[tuple[str, Statut]], expected: int
) -> None:
    assert matched((NAME, RECORDED), *returned) == [expected, None]
    assert reconcile(answers(*returned), (NAME, RECORDED)).unknown == len(returned) - 1


def test_a_duplicate_does_not_stand_in_for_a_point_like_it() -> None:
    assert matched(
        ("Nom du client", "Nom du client vérifié"), ("Nom du client", P), ("Nom du client", P)
    ) == [0, None]


def test_an_answer_keeps_all_but_its_text() -> None:
    before = ControlPoint(
        point=f"1. {NAME}",
        statut=H,
        commentaire="À moitié.",
        minutages=("00:12",),
        erreur_transcription_notee=True,
        variation_phonetique_utilisee="nomme",
    )
    after = reconcile(finding(before, score=7), (NAME,))
    assert after.finding.points == (
        ControlPoint(
            point=NAME,
            statut=H,
            commentaire="À moitié.",
            minutages=("00:12",),
            erreur_transcription_notee=True,
            variation_phonetique_utilisee="nomme",
        ),
    )
    assert (after.finding.score, after.missing, after.unknown) == (7, 0, 0)


def test_a_point_without_an_answer_was_not_dealt_with() -> None:
    result = reconcile(answers((NAME, P), ("Autre chose", P)), (NAME, RECORDED))
    assert result.finding.points[1] == ControlPoint(
        point=RECORDED, statut=A, commentaire="Non traité par le modèle."
    )
    assert (result.missing, result.unknown) == (1, 1)


def test_a_step_returned_without_control_points_keeps_no_score() -> None:
    result = reconcile(finding(score=10), (NAME, RECORDED))
    after = gate(result.finding, 10, Timeline(()), GatingOptions()).finding
    assert result.missing == 2
    assert (after.score, after.conforme, after.niveau_conformite) == (
        0,
        Conforme.NON_CONFORME,
        Niveau.INSUFFISANT,
    )


@given(findings, st.lists(texts, max_size=5).map(tuple))
def test_every_configured_point_is_there_once_and_nothing_else(
    step: StepFinding, configured: tuple[str, ...]
) -> None:
    result = reconcile(step, configured)
    assert tuple(point.point for point in result.finding.points) == configured
    assert len(configured) - result.missing == len(step.points) - result.unknown >= 0
    assert result.missing >= 0
    again = reconcile(result.finding, configured)
    assert [point.statut for point in again.finding.points] == [
        point.statut for point in result.finding.points
    ]
