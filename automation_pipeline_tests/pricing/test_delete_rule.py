"""Deleting leaves the row to its runs, and does not pull a rule away from under a run."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.pricing_rules import delete_rule
from automation_pipeline.pricing.queries.rules import get_rule
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule, a_run, events


def deleted(rule: PricingRule, database: Database, clock: StandingClock) -> None:
    delete_rule(rule.id, database=database, clock=clock, actor="user:13")


def test_a_deleted_rule_stays_disabled_for_its_runs(
    database: Database, clock: StandingClock
) -> None:
    rule, other = a_rule(database, clock), a_rule(database, clock)
    clock.pass_time_a_second()
    deleted(rule, database, clock)
    with database.reading() as session:
        kept = get_rule(session, rule.id, deleted_too=True)
        assert get_rule(session, other.id) == other
    changes = {"enabled": False, "deleted_at": clock.now(), "updated_at": clock.now()}
    assert kept == rule.model_copy(update=changes)
    [event] = events(database, "rule.deleted")
    assert event.payload == {"ruleId": str(rule.id), "projectId": "default", "deletedBy": "user:13"}


@pytest.mark.parametrize("status", ["QUEUED", "APPLYING"])
def test_a_rule_with_a_run_at_work_is_not_deleted(
    status: str, database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    run_id = a_run(database, rule, status, clock.now())
    with pytest.raises(ConflictError, match=f"cannot be deleted while run {run_id} is not over"):
        deleted(rule, database, clock)
    with database.reading() as session:
        assert get_rule(session, rule.id) == rule
    assert events(database, "rule.deleted") == []


@pytest.mark.parametrize("status", ["PREVIEW", "APPLIED", "PARTIAL", "FAILED", "ROLLED_BACK"])
def test_a_rule_with_other_runs_is_deleted(
    status: str, database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    a_run(database, rule, status, clock.now())
    deleted(rule, database, clock)


def test_what_is_not_there_is_not_deleted(database: Database, clock: StandingClock) -> None:
    rule = a_rule(database, clock)
    deleted(rule, database, clock)
    with pytest.raises(NotFoundError, match=f"Pricing rule {rule.id} not found"):
        deleted(rule, database, clock)
