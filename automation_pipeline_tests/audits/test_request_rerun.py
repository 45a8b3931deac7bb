"""Asking for a rerun: one request each, and nothing asked for that cannot be."""

import pytest
from sqlalchemy import select

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.requests import RequestedRerun, request_rerun
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.audits.reviewers import put
from automation_pipeline_tests.conftest import StandingClock


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    bench = Bench(database, clock)
    bench.sell("1900417")
    bench.audit("1900417", bench.configure(steps=2))
    return bench


def request(bench: Bench, place: StepLocation, instructions: str | None = None) -> RequestedRerun:
    return request_rerun(
        place, instructions=instructions, database=bench.database, clock=bench.clock
    )


def requests(bench: Bench) -> list[RunRequestRow]:
    with bench.database.reading() as session:
        return list(session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)))


def test_each_wish_is_a_request_of_its_own(bench: Bench) -> None:
    one = request(bench, StepLocation(1, 2), " Listen. ")
    two = request(bench, StepLocation(1, 2, 1))
    assert one.rerun_id == one.key == f"rerun-1-2-{one.event_id}"
    assert two.rerun_id == f"rerun-1-2-cp-1-{two.event_id}"
    first, second = requests(bench)
    assert (first.request_key, first.job) == (one.key, "audit_rerun")
    assert first.config == {
        "audit_id": 1,
        "step_position": 2,
        "rerun_id": one.rerun_id,
        "custom_prompt": "Listen.",
    }
    assert second.config == {
        "audit_id": 1,
        "step_position": 2,
        "rerun_id": two.rerun_id,
        "control_point_index": 1,
    }
    assert (first.tags["automation/fiche_id"], first.tags["automation/trace_id"]) == (
        "1900417",
        one.rerun_id,
    )


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (StepLocation(501, 1), "Audit not found"),
        (StepLocation(1, 3), "Audit step with ID '1:3' not found"),
        (StepLocation(1, 2, 3), "Audit control point with ID '1:2:3' not found"),
        (StepLocation(1, 2, 0), "Audit control point with ID '1:2:0' not found"),
    ],
)
def test_what_is_not_there_cannot_be_judged_again(
    bench: Bench, place: StepLocation, sentence: str
) -> None:
    with pytest.raises(NotFoundError, match=sentence):
        request(bench, place)
    assert requests(bench) == []


@pytest.mark.parametrize("state", ["running", "failed", "deleted"])
def test_only_a_completed_audit_is_judged_again(bench: Bench, state: str) -> None:
    put(bench.database, 1, state)
    with pytest.raises(ConflictError):
        request(bench, StepLocation(1, 1))
    assert requests(bench) == []


def test_instructions_have_an_end(bench: Bench) -> None:
    assert request(bench, StepLocation(1, 1), "x" * 5000)
    with pytest.raises(InvalidInputError):
        request(bench, StepLocation(1, 1), "x" * 5001)
