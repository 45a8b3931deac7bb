"""Reruns: what they are known by, what the model is told, what a trail keeps."""

import pytest

from automation_pipeline.audits.models.audits import Rerun, StepLocation, rerun_id
from automation_pipeline.audits.models.findings import Conforme, Statut
from automation_pipeline.audits.rules.reviews import (
    single_point_step,
    validate_instructions,
    verdict_summary,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.audits.rules.strategies import citation, finding, point
from automation_pipeline_tests.audits.rules.timelines import step
from automation_pipeline_tests.tables import every_case

FOUND = finding(
    point(Statut.PRESENT, citation("un"), text="Nom donné"),
    point(Statut.ABSENT, text="Appel enregistré", commentaire="Pas entendu."),
    score=5,
    conforme=Conforme.PARTIEL,
)


@every_case("place", [StepLocation(501, 3), StepLocation(501, 3, 2)])
def test_the_event_is_read_from_the_id_that_was_made_of_it(place: StepLocation) -> None:
    made = rerun_id(place, "e-1")
    assert Rerun(rerun_id=made, place=place).event_id == "e-1"
    assert Rerun(rerun_id="by hand", place=place).event_id is None


@every_case(
    ("given", "told"),
    [(None, None), ("", None), (" \n", None), (" Listen twice. ", "Listen twice.")],
)
def test_blank_instructions_are_none(given: str | None, told: str | None) -> None:
    assert validate_instructions(given) == told


def test_instructions_have_an_end() -> None:
    assert validate_instructions("x" * 5000)
    for given in ("x" * 5001, "a\0b", "a\udcff"):
        with pytest.raises(InvalidInputError) as refused:
            validate_instructions(given)
        assert [field for field, _ in refused.value.fields] == ["instructions"]


def test_a_control_point_is_asked_for_alone_with_what_was_found() -> None:
    asked, previous = single_point_step(
        step(control_points=("Nom donné", "Appel enregistré"), weight=7), FOUND, 2
    )
    assert (asked.control_points, asked.weight) == (("Appel enregistré",), 7)
    assert previous == "ABSENT : Pas entendu."


def test_a_trail_keeps_the_verdict_on_what_was_judged() -> None:
    assert verdict_summary(FOUND, None) == {"score": 5, "conforme": "PARTIEL", "total_citations": 1}
    of_point = {"statut": "PRESENT", "commentaire": "Vu.", "citations": 1}
    assert verdict_summary(FOUND, 1) == {**of_point, "step_score": 5, "step_conforme": "PARTIEL"}
