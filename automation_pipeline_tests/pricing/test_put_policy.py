"""Guardrails are put whole, for a project that has a name."""

import pytest
from sqlalchemy import func, select

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.rules import Policy
from automation_pipeline.pricing.pricing_rules import put_policy
from automation_pipeline.pricing.queries.rules import policy_of
from automation_pipeline.pricing.tables import PricingPolicyRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import events


def put(
    project_id: str, given: dict[str, object], database: Database, clock: StandingClock
) -> Policy:
    return put_policy(project_id, given, database=database, clock=clock, actor="user:12")


def test_what_is_put_stands_whole_in_place_of_the_old(
    database: Database, clock: StandingClock
) -> None:
    put("eu", {"maxPctDelta": 0.2, "floor": 100, "currency": "EUR"}, database, clock)
    clock.pass_time_a_second()
    policy = put("eu", {"autoApply": True}, database, clock)
    assert (policy.auto_apply, policy.floor, policy.max_pct_delta) == (True, None, None)
    with database.reading() as session:
        assert policy_of(session, "eu") == policy
        row = session.scalars(select(PricingPolicyRow)).one()
    assert (row.updated_by, row.updated_at) == ("user:12", clock.now())


def test_each_time_it_is_told_by_whom_and_what_holds_now(
    database: Database, clock: StandingClock
) -> None:
    for given in ({"maxPctDelta": 0.2}, {"autoApply": True}, {"autoApply": True}):
        put("eu", given, database, clock)
    told = [event.payload for event in events(database, "policy.changed")]
    assert {(payload["projectId"], payload["changedBy"]) for payload in told} == {("eu", "user:12")}
    assert sorted(payload["policy"]["autoApply"] for payload in told) == [False, True, True]


@pytest.mark.parametrize(
    ("project_id", "given", "field"),
    [
        ("e u", {}, "project"),
        ("eu", {"floor": 5}, "currency"),
        ("eu", {"maxPctDelta": 15}, "maxPctDelta"),
    ],
)
def test_what_is_at_fault_is_not_put(
    project_id: str, given: dict[str, object], field: str, database: Database, clock: StandingClock
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid pricing policy data$") as caught:
        put(project_id, given, database, clock)
    assert [at for at, _ in caught.value.fields] == [field]
    with database.reading() as session:
        assert session.scalar(select(func.count(PricingPolicyRow.project_id))) == 0
    assert events(database, "policy.changed") == []
