"""Trails: added to in their order, read by step, in the words of the result document."""

import pytest
from sqlalchemy.exc import IntegrityError

from automation_pipeline.audits.models.audits import Rerun, StepLocation
from automation_pipeline.audits.models.findings import Statut
from automation_pipeline.audits.queries.steps import (
    add_rerun,
    add_review,
    has_rerun,
    step_histories,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import NOW, add, add_audit
from automation_pipeline_tests.audits.rules.strategies import finding, point

AT = "2026-05-04T10:00:00.000Z"
OLD, NEW = ({"score": score, "conforme": "PARTIEL", "total_citations": 1} for score in (2, 3))


@pytest.fixture
def audit_id(database: Database) -> int:
    config_id = add(database)
    with database.transaction() as session:
        add_audit(session, config_id, total_steps=2)
    return 1


def test_both_trails_are_read_by_step(database: Database, audit_id: int) -> None:
    said = ({"statut": "ABSENT", "commentaire": "Vu."}, {"statut": "PRESENT", "commentaire": "Vu."})
    first = point(Statut.PRESENT)
    before = finding(first, point(Statut.ABSENT, text="Name"))
    after = finding(first, point(Statut.PRESENT, text="Name"))
    made = f"rerun-{audit_id}-2-e"
    with database.transaction() as session:
        add_review(session, StepLocation(audit_id, 1, 2), (before, after), None, None, NOW)
        add_rerun(
            session, Rerun(rerun_id=made, place=StepLocation(audit_id, 2)), (OLD, NEW), None, 9, NOW
        )
        of_point = Rerun(
            rerun_id="by hand", place=StepLocation(audit_id, 2, 1), instructions="Listen."
        )
        add_rerun(session, of_point, (NEW, OLD), "Name", 9, NOW)
    with database.reading() as session:
        trails = {
            position: trail for (_, position), trail in step_histories(session, [audit_id]).items()
        }
        assert step_histories(session, [7]) == {}
        assert (has_rerun(session, made), has_rerun(session, "another")) == (True, False)
    assert set(trails) == {1, 2}
    assert (trails[1].rerun_history, trails[2].human_review) == ([], [])
    place = {"control_point_index": 2, "point": "Name"}
    who = {"at": AT, "by": None, "reason": None, "kind": "control_point"}
    assert trails[1].human_review == [{**who, **place, "previous": said[0], "override": said[1]}]
    assert trails[2].rerun_history == [
        {"at": AT, "kind": "step_rerun", "rerun_id": made, "event_id": "e", "step_position": 2, "custom_prompt": None,
         "previous": OLD, "next": NEW},
        {"at": AT, "kind": "control_point_rerun", "rerun_id": "by hand", "event_id": None, "step_position": 2,
         "control_point_index": 1, "point": "Name", "custom_prompt": "Listen.", "previous": NEW, "next": OLD},
    ]  # fmt: skip


def test_a_rerun_counts_once(database: Database, audit_id: int) -> None:
    rerun = Rerun(rerun_id="once", place=StepLocation(audit_id, 1))
    with database.transaction() as session:
        add_rerun(session, rerun, (OLD, NEW), None, 9, NOW)
    with pytest.raises(IntegrityError), database.transaction() as session:
        add_rerun(session, rerun, (OLD, NEW), None, 9, NOW)
