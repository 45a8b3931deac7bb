"""A rule is stored whole in its first version, and told of; or nothing is."""

import pytest
from sqlalchemy import func, select

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.rules import version_hash
from automation_pipeline.pricing.pricing_rules import create_rule
from automation_pipeline.pricing.queries.rules import get_rule, versions_of
from automation_pipeline.pricing.tables import RuleRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import GIVEN, a_rule, events


def test_a_new_rule_is_kept_with_its_first_version(
    database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock, project_id="eu")
    with database.reading() as session:
        assert get_rule(session, rule.id) == rule
        [version] = versions_of(session, rule.id, 10, 0)
    assert (rule.project_id, rule.version, rule.created_by, rule.deleted_at) == (
        "eu",
        1,
        "user:12",
        None,
    )
    assert (rule.created_at, rule.updated_at) == (clock.now(), clock.now())
    assert rule.version_hash == version.version_hash == version_hash(rule.as_input)
    assert version.rule["selector"] == {"tag": ["summer"]}
    assert (version.version, version.created_by) == (1, "user:12")


def test_a_new_rule_is_told_of(database: Database, clock: StandingClock) -> None:
    rule = a_rule(database, clock)
    [event] = events(database, "rule.created")
    assert (event.key, event.producer, event.occurred_at) == (
        f"rule-{rule.id}:created",
        "pricing",
        clock.now(),
    )
    assert event.payload == {
        "ruleId": str(rule.id),
        "projectId": "default",
        "name": "Summer sale",
        "version": 1,
        "createdBy": "user:12",
    }


@pytest.mark.parametrize(
    ("given", "project_id", "field"),
    [
        ({**GIVEN, "name": ""}, "default", "name"),
        ({**GIVEN, "transform": {"op": "set", "value": 999}}, "default", "currency"),
        (GIVEN, "two words", "project"),
        (GIVEN, "", "project"),
        (GIVEN, "x" * 101, "project"),
    ],
)
def test_a_rule_at_fault_is_not_stored(
    given: dict[str, object], project_id: str, field: str, database: Database, clock: StandingClock
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid pricing rule data$") as caught:
        create_rule(given, project_id=project_id, database=database, clock=clock, actor="user:12")
    assert [at for at, _ in caught.value.fields] == [field]
    with database.reading() as session:
        assert session.scalar(select(func.count(RuleRow.id))) == 0
    assert events(database, "rule.created") == []
