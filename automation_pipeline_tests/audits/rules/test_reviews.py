"""Findings changed by reviews and reruns."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import (
    Conforme,
    ControlPoint,
    Niveau,
    Rerun,
    Statut,
    StepFinding,
    StepLocation,
    rerun_id,
)
from automation_pipeline.audits.requests import validate_instructions
from automation_pipeline.audits.reviews import (
    PointReview,
    StepReview,
    apply_control_point_review,
    apply_step_review,
    replace_control_point,
    single_point_step,
    verdict_summary,
)
from automation_pipeline.audits.rules.verdicts import derive_verdict
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline_tests.audits.rules.strategies import (
    citation,
    control_points,
    finding,
    findings,
    point,
    weights,
)
from automation_pipeline_tests.audits.rules.timelines import step
from automation_pipeline_tests.cases import every_case

P, H, A, N = Statut.PRESENT, Statut.PARTIEL, Statut.ABSENT, Statut.NON_APPLICABLE
STEP = finding(
    point(P, citation("un")), point(A), score=5, conforme=Conforme.PARTIEL, niveau=Niveau.ACCEPTABLE
)


@pytest.mark.parametrize(
    ("model", "given_fields"),
    [
        (StepReview, {"conforme": "CONFORME"}),
        (
            StepReview,
            {"conforme": "PARTIEL", "traite": False, "score": 0, "niveauConformite": "REJET"},
        ),
        (StepReview, {"conforme": "PARTIEL", "reviewer": "x" * 200, "reason": "x" * 5000}),
        (StepReview, {"conforme": "PARTIEL", "score": None, "niveauConformite": None}),
        (PointReview, {"statut": "PRESENT"}),
        (PointReview, {"commentaire": ""}),
        (PointReview, {"commentaire": "x" * 20_000, "reviewer": "Odile", "reason": "C'est dit."}),
    ],
)
def test_a_valid_review_is_parsed(model: type[JsonModel], given_fields: dict[str, object]) -> None:
    review = parse(model, given_fields, "No review.")
    assert {name: review.model_dump(by_alias=True)[name] for name in given_fields} == given_fields


@pytest.mark.parametrize(
    ("model", "given_fields", "field"),
    [
        (StepReview, {}, "conforme"),
        (StepReview, {"conforme": "OUI"}, "conforme"),
        (StepReview, {"conforme": "CONFORME", "score": -1}, "score"),
        (StepReview, {"conforme": "CONFORME", "score": 2.5}, "score"),
        (StepReview, {"conforme": "CONFORME", "niveauConformite": "PENDING"}, "niveauConformite"),
        (StepReview, {"conforme": "CONFORME", "reviewer": ""}, "reviewer"),
        (StepReview, {"conforme": "CONFORME", "reviewer": "x" * 201}, "reviewer"),
        (StepReview, {"conforme": "CONFORME", "reason": ""}, "reason"),
        (StepReview, {"conforme": "CONFORME", "reason": "x" * 5001}, "reason"),
        (StepReview, {"conforme": "CONFORME", "statut": "PRESENT"}, "statut"),
        (PointReview, {}, ""),
        (PointReview, {"reviewer": "Odile"}, ""),
        (PointReview, {"statut": None, "commentaire": None}, ""),
        (PointReview, {"statut": "CONFORME"}, "statut"),
        (PointReview, {"commentaire": "x" * 20_001}, "commentaire"),
        (PointReview, {"commentaire": "a\0b"}, "commentaire"),
        (PointReview, {"commentaire": "a\ud83d"}, "commentaire"),
        (StepReview, {"conforme": "CONFORME", "reviewer": "\udc41"}, "reviewer"),
    ],
)
def test_an_empty_or_invalid_review_is_refused(
    model: type[JsonModel], given_fields: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(model, given_fields, "No review.")
    assert [name for name, _ in refused.value.fields] == [field]


def test_a_review_of_a_step_changes_only_given_fields() -> None:
    changed = apply_step_review(STEP, 10, StepReview(conforme=Conforme.CONFORME))
    assert changed == replace(STEP, conforme=Conforme.CONFORME)
    review = StepReview(
        conforme=Conforme.NON_CONFORME, traite=False, score=0, niveau_conformite=Niveau.REJET
    )
    assert apply_step_review(STEP, 10, review) == replace(
        STEP, conforme=Conforme.NON_CONFORME, traite=False, score=0, niveau_conformite=Niveau.REJET
    )


@pytest.mark.parametrize(("score", "accepted"), [(0, True), (10, True), (11, False)])
def test_a_review_gives_a_score_up_to_the_weight(score: int, accepted: bool) -> None:
    review = StepReview(conforme=Conforme.CONFORME, score=score)
    if accepted:
        assert apply_step_review(STEP, 10, review).score == score
        return
    with pytest.raises(InvalidInputError) as refused:
        apply_step_review(STEP, 10, review)
    assert refused.value.fields == (("score", "must not be above the weight of the step, 10"),)


def test_only_a_given_traite_changes_whether_a_step_is_dealt_with() -> None:
    skipped = replace(STEP, traite=False)
    assert not apply_step_review(skipped, 10, StepReview(conforme=Conforme.PARTIEL)).traite
    assert not apply_control_point_review(skipped, 10, 1, PointReview(statut=P)).traite


@pytest.mark.parametrize(
    ("index", "statut", "score", "conforme", "niveau"),
    [
        (2, P, 10, Conforme.CONFORME, Niveau.EXCELLENT),
        (2, H, 8, Conforme.PARTIEL, Niveau.ACCEPTABLE),  # 7.5
        (2, N, 10, Conforme.CONFORME, Niveau.EXCELLENT),
        (2, A, 5, Conforme.PARTIEL, Niveau.ACCEPTABLE),
        (1, H, 3, Conforme.NON_CONFORME, Niveau.INSUFFISANT),  # 2.5
        (1, A, 0, Conforme.NON_CONFORME, Niveau.INSUFFISANT),
    ],
)
def test_a_reviewed_control_point_rescores_the_step(
    index: int, statut: Statut, score: int, conforme: Conforme, niveau: Niveau
) -> None:
    changed = apply_control_point_review(STEP, 10, index, PointReview(statut=statut))
    assert (changed.score, changed.conforme, changed.niveau_conformite) == (score, conforme, niveau)
    assert changed.points[index - 1] == replace(STEP.points[index - 1], statut=statut)
    assert changed.points[2 - index] == STEP.points[2 - index]
    assert changed.minutages == ("00:12",)


def test_a_comment_is_replaced_or_emptied() -> None:
    assert (
        apply_control_point_review(STEP, 10, 1, PointReview(commentaire="C'est dit."))
        .points[0]
        .commentaire
        == "C'est dit."
    )
    emptied = apply_control_point_review(STEP, 10, 1, PointReview(commentaire="", statut=A)).points[
        0
    ]
    assert (emptied.commentaire, emptied.statut) == ("", A)


def test_a_comment_alone_keeps_the_verdict_of_the_step() -> None:
    overruled = apply_step_review(STEP, 10, StepReview(conforme=Conforme.CONFORME, score=9))
    commented = apply_control_point_review(overruled, 10, 2, PointReview(commentaire="C'est dit."))
    second = replace(STEP.points[1], commentaire="C'est dit.")
    assert commented == replace(overruled, points=(STEP.points[0], second))


def test_a_rerun_replaces_a_control_point() -> None:
    again = point(P, citation("deux", minutage="03:00"), text="Second")
    changed = replace_control_point(STEP, 10, 2, again)
    assert changed.points == (STEP.points[0], again)
    assert (changed.score, changed.conforme, changed.niveau_conformite) == (
        10,
        Conforme.CONFORME,
        Niveau.EXCELLENT,
    )
    assert changed.minutages == ("00:12", "03:00")


@pytest.mark.parametrize("index", [-1, 0, 3])
def test_an_unknown_control_point_is_not_found(index: int) -> None:
    with pytest.raises(NotFoundError, match=f"no control point {index}: the step has 2"):
        apply_control_point_review(STEP, 10, index, PointReview(statut=P))
    with pytest.raises(NotFoundError):
        replace_control_point(STEP, 10, index, STEP.points[0])


@given(findings.filter(lambda step: step.points), weights, control_points, st.randoms())
def test_a_rescored_step_follows_its_points(
    step: StepFinding, weight: int, again: ControlPoint, random: Random
) -> None:
    index = random.randint(1, len(step.points))
    changed = replace_control_point(step, weight, index, again)
    result = derive_verdict(changed.points, weight)
    assert (changed.score, changed.conforme, changed.niveau_conformite) == (
        result.score,
        result.conforme,
        result.niveau,
    )
    assert len(changed.points) == len(step.points)
    assert replace_control_point(changed, weight, index, again) == changed


FOUND = finding(
    point(Statut.PRESENT, citation("un"), text="Nom donné"),
    point(Statut.ABSENT, text="Appel enregistré", commentaire="Pas entendu."),
    score=5,
    conforme=Conforme.PARTIEL,
)


@every_case("location", [StepLocation(501, 3), StepLocation(501, 3, 2)])
def test_the_event_id_is_the_suffix_of_the_rerun_id(location: StepLocation) -> None:
    created = rerun_id(location, "e-1")
    assert Rerun(rerun_id=created, location=location).event_id == "e-1"
    assert Rerun(rerun_id="by hand", location=location).event_id is None


@every_case(
    ("given", "expected"),
    [(None, None), ("", None), (" \n", None), (" Listen twice. ", "Listen twice.")],
)
def test_blank_instructions_are_none(given: str | None, expected: str | None) -> None:
    assert validate_instructions(given) == expected


def test_too_long_instructions_are_refused() -> None:
    assert validate_instructions("x" * 5000)
    for text in ("x" * 5001, "a\0b", "a\udcff"):
        with pytest.raises(InvalidInputError) as refused:
            validate_instructions(text)
        assert [field for field, _ in refused.value.fields] == ["instructions"]


def test_a_rerun_of_a_point_asks_for_it_alone_with_its_previous_verdict() -> None:
    asked, previous = single_point_step(
        step(control_points=("Nom donné", "Appel enregistré"), weight=7), FOUND, 2
    )
    assert (asked.control_points, asked.weight) == (("Appel enregistré",), 7)
    assert previous == "ABSENT : Pas entendu."


def test_the_history_keeps_the_verdict_of_the_step_or_the_point() -> None:
    assert verdict_summary(FOUND, None) == {"score": 5, "conforme": "PARTIEL", "total_citations": 1}
    of_point = {"statut": "PRESENT", "commentaire": "Vu.", "citations": 1}
    assert verdict_summary(FOUND, 1) == {**of_point, "step_score": 5, "step_conforme": "PARTIEL"}
