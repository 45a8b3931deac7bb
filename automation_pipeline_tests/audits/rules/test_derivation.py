"""From control points to a score and verdicts."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.findings import Conforme, ControlPoint, Niveau, Statut
from automation_pipeline.audits.rules.verdicts import (
    derive_verdict,
    met_ratio,
    minutages_of,
    round_half_up,
)
from automation_pipeline_tests.audits.rules.strategies import (
    citation,
    control_points,
    point,
    points_of,
    weights,
)
from automation_pipeline_tests.tables import every_case

P, H, A, N = Statut.PRESENT, Statut.PARTIEL, Statut.ABSENT, Statut.NON_APPLICABLE


@every_case(
    ("statuts", "ratio"),
    [
        ([], 1),
        ([N, N], 1),
        ([P], 1),
        ([H], Fraction(1, 2)),
        ([A], 0),
        ([P, A], Fraction(1, 2)),
        ([P, H, A], Fraction(1, 2)),
        ([P, A, N], Fraction(1, 2)),
        ([P, P, H], Fraction(5, 6)),
    ],
)
def test_the_ratio_is_of_the_applicable_points(statuts: list[Statut], ratio: Fraction) -> None:
    assert met_ratio(points_of(statuts)) == ratio


@every_case(
    ("value", "rounded"),
    [("0", 0), ("0.49", 0), ("0.5", 1), ("1.5", 2), ("2.5", 3), ("2.4999", 2), ("4.5", 5)],
)
def test_halves_go_up(value: str, rounded: int) -> None:
    assert round_half_up(Fraction(value)) == rounded


@every_case(
    ("statuts", "weight", "score", "conforme", "niveau"),
    [
        ([], 10, 10, Conforme.CONFORME, Niveau.EXCELLENT),
        ([P] * 20, 10, 10, Conforme.CONFORME, Niveau.EXCELLENT),
        ([P] * 19 + [A], 10, 10, Conforme.CONFORME, Niveau.EXCELLENT),  # 0.95
        ([P] * 18 + [H, A], 10, 9, Conforme.CONFORME, Niveau.BON),  # 0.925
        ([P] * 17 + [A] * 3, 10, 9, Conforme.CONFORME, Niveau.BON),  # 0.85
        ([P] * 16 + [H] + [A] * 3, 10, 8, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 0.825
        ([P] * 2 + [A] * 3, 10, 4, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 0.4
        ([P] * 7 + [H] + [A] * 12, 10, 4, Conforme.NON_CONFORME, Niveau.INSUFFISANT),  # 0.375
        ([A, A], 10, 0, Conforme.NON_CONFORME, Niveau.INSUFFISANT),
        ([P, A], 5, 3, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 2.5
        ([P, A], 9, 5, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 4.5
        ([P], 0, 0, Conforme.CONFORME, Niveau.EXCELLENT),
    ],
)
def test_score_and_verdicts_follow_from_the_ratio(
    statuts: list[Statut], weight: int, score: int, conforme: Conforme, niveau: Niveau
) -> None:
    result = derive_verdict(points_of(statuts), weight)
    assert (result.score, result.conforme, result.niveau) == (score, conforme, niveau)


@given(st.lists(control_points, max_size=8), weights)
def test_a_derived_score_is_within_the_weight(points: list[ControlPoint], weight: int) -> None:
    assert 0 <= derive_verdict(points, weight).score <= weight


def test_minutages_are_of_all_citations_each_once_in_order() -> None:
    points = (
        point(P, citation("b", minutage="00:40"), citation("a")),
        point(A),
        point(P, citation("c"), citation("d", minutage="00:05")),
    )
    assert minutages_of(points) == ("00:40", "00:12", "00:05")
