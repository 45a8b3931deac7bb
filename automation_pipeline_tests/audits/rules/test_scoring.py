"""The score of an audit, and when it is rejected."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.models.findings import (
    Conforme,
    GatingStats,
    Niveau,
    StepFinding,
    StoredStep,
)
from automation_pipeline.audits.rules.verdicts import score_audit
from automation_pipeline_tests.tables import every_case

C, PC, NC = Conforme.CONFORME, Conforme.PARTIEL, Conforme.NON_CONFORME


def step(
    weight: int, score: int, conforme: Conforme = C, *, critical: bool = False, traite: bool = True
) -> StoredStep:
    return StoredStep(
        position=1,
        name="Greeting",
        severity="HIGH",
        is_critical=critical,
        weight=weight,
        usage=Usage(),
        finding=StepFinding(
            traite=traite,
            conforme=conforme,
            score=score,
            niveau_conformite=Niveau.BON,
            points=(),
        ),
        stats=GatingStats(0),
    )


def scored(earned: int, of: int) -> list[StoredStep]:
    return [step(1, 1)] * earned + [step(1, 0, NC)] * (of - earned)


@every_case(
    ("earned", "of", "percentage", "niveau", "compliant"),
    [
        (10, 10, "100.00", Niveau.EXCELLENT, True),
        (9, 10, "90.00", Niveau.EXCELLENT, True),
        (8999, 10_000, "89.99", Niveau.BON, True),
        (17_999, 20_000, "90.00", Niveau.BON, True),  # 89.995: rounded to be read, not to be judged
        (3, 4, "75.00", Niveau.BON, True),
        (14_999, 20_000, "75.00", Niveau.ACCEPTABLE, True),
        (7499, 10_000, "74.99", Niveau.ACCEPTABLE, True),
        (6, 10, "60.00", Niveau.ACCEPTABLE, True),
        (11_999, 20_000, "60.00", Niveau.INSUFFISANT, False),
        (5999, 10_000, "59.99", Niveau.INSUFFISANT, False),
        (0, 10, "0.00", Niveau.INSUFFISANT, False),
        (103, 125, "82.40", Niveau.BON, True),
        (2, 3, "66.67", Niveau.ACCEPTABLE, True),
        (1, 3, "33.33", Niveau.INSUFFISANT, False),
        (1, 800, "0.13", Niveau.INSUFFISANT, False),  # 0.125: a half goes up
    ],
)
def test_the_niveau_is_of_the_exact_percentage(
    earned: int, of: int, percentage: str, niveau: Niveau, compliant: bool
) -> None:
    result = score_audit(scored(earned, of))
    assert (str(result.score_percentage), result.niveau, result.is_compliant) == (
        percentage,
        niveau,
        compliant,
    )
    assert (result.earned, result.total_weight) == (earned, of)


@every_case(
    ("verdicts", "passed", "niveau"),
    [
        ([C], 1, Niveau.EXCELLENT),
        ([PC], 0, Niveau.REJET),
        ([NC], 0, Niveau.REJET),
        ([C, C], 2, Niveau.EXCELLENT),
        ([C, PC], 1, Niveau.REJET),
        ([C, NC], 1, Niveau.REJET),
        ([], 0, Niveau.EXCELLENT),
    ],
)
def test_every_critical_step_must_be_conforme_whatever_the_score(
    verdicts: list[Conforme], passed: int, niveau: Niveau
) -> None:
    steps = [step(5, 5, NC), *(step(5, 5, verdict, critical=True) for verdict in verdicts)]
    result = score_audit(steps)
    assert (result.critical_passed, result.critical_total) == (passed, len(verdicts))
    assert (result.niveau, result.score_percentage) == (niveau, Decimal(100))
    assert result.is_compliant == (niveau is not Niveau.REJET)


def test_passing_every_critical_step_does_not_make_up_for_the_score() -> None:
    result = score_audit([step(1, 1, critical=True), step(9, 0, NC)])
    assert (result.niveau, result.is_compliant) == (Niveau.INSUFFISANT, False)


def test_a_rejected_audit_stays_so_below_every_threshold() -> None:
    assert score_audit([step(5, 0, NC, critical=True)]).niveau is Niveau.REJET


@every_case(
    ("scores", "earned"),
    [([(5, 12)], 5), ([(5, -3)], 0), ([(5, -3), (5, 9)], 5), ([(5, 5), (0, 4)], 5)],
)
def test_a_step_earns_from_nothing_to_its_weight(
    scores: list[tuple[int, int]], earned: int
) -> None:
    assert score_audit([step(weight, score) for weight, score in scores]).earned == earned


@every_case("steps", [[], [step(0, 0)], [step(0, 3)]])
def test_without_any_weight_the_score_is_nothing(steps: list[StoredStep]) -> None:
    result = score_audit(steps)
    assert (result.score_percentage, result.total_weight) == (Decimal(0), 0)
    assert (result.niveau, result.is_compliant) == (Niveau.INSUFFISANT, False)


def test_without_any_weight_a_critical_step_rejects_all_the_same() -> None:
    assert score_audit([step(0, 0, PC, critical=True)]).niveau is Niveau.REJET


def test_steps_that_were_not_dealt_with_are_counted_as_failed_and_keep_their_weight() -> None:
    result = score_audit([step(5, 5), step(5, 0, NC, traite=False), step(10, 10)])
    assert (result.successful_steps, result.failed_steps) == (2, 1)
    assert result.score_percentage == Decimal(75)


def test_a_failed_critical_step_rejects() -> None:
    assert (
        score_audit([step(9, 9), step(1, 0, NC, critical=True, traite=False)]).niveau
        is Niveau.REJET
    )


_steps = st.builds(
    step,
    st.integers(0, 10),
    st.integers(-5, 20),
    st.sampled_from(Conforme),
    critical=st.booleans(),
    traite=st.booleans(),
)


@given(st.lists(_steps, max_size=20))
def test_every_audit_has_a_percentage_and_a_niveau(steps: list[StoredStep]) -> None:
    result = score_audit(steps)
    assert Decimal(0) <= result.score_percentage <= Decimal(100)
    assert 0 <= result.earned <= result.total_weight
    assert result.successful_steps + result.failed_steps == len(steps)
    assert (result.niveau is Niveau.REJET) == (result.critical_passed < result.critical_total)
