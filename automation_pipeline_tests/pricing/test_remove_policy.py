"""Guardrails are removed once, by somebody, who is told of."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.pricing_rules import put_policy, remove_policy
from automation_pipeline.pricing.queries.rules import policy_of
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import events


def test_a_project_without_its_policy_has_none(database: Database, clock: StandingClock) -> None:
    for project_id in ("eu", "us"):
        put_policy(project_id, {}, database=database, clock=clock, actor="user:12")
    remove_policy("eu", database=database, clock=clock, actor="user:13")
    with database.reading() as session:
        assert policy_of(session, "eu") is None
        assert policy_of(session, "us") is not None
    [event] = events(database, "policy.removed")
    assert event.payload == {"projectId": "eu", "removedBy": "user:13"}


def test_what_is_not_there_is_not_removed(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Project eu has no pricing policy"):
        remove_policy("eu", database=database, clock=clock, actor="user:13")
    assert events(database, "policy.removed") == []
