"""Queries of alerts: newest first, by scope."""

import pytest

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.health import ORG_ALERTS, list_alerts
from automation_pipeline.org_jobs.rules.health import OrgJobsAlertName
from automation_pipeline.storage.alerts import add_alerts, last_raised
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, OrgJobsData


def make_alert(org_id: str | None, subject: str) -> AlertCondition:
    critical = AlertSeverity.CRITICAL
    return AlertCondition(
        org_id=org_id,
        name=OrgJobsAlertName.SERVER_DOWN,
        severity=critical,
        subject=subject,
        message="It is down.",
    )


@pytest.fixture(autouse=True)
def _raised(data: OrgJobsData) -> None:
    for org_id in (ORG, OTHER_ORG):
        data.organisation(org_id)
    alerts = [
        make_alert(ORG, "1"),
        make_alert(OTHER_ORG, "2"),
        make_alert(None, "3"),
        make_alert(ORG, "4"),
    ]
    with data.database.transaction() as session:
        add_alerts(session, ORG_ALERTS, alerts, data.now, {})


@every_case(
    ("within", "org_id", "subjects"),
    [
        (ALL_ORGANISATIONS, None, ["4", "3", "2", "1"]),
        (ALL_ORGANISATIONS, ORG, ["4", "1"]),
        (OrgScope(ORG), None, ["4", "1"]),
        (OrgScope(ORG), ORG, ["4", "1"]),
        (OrgScope(ORG), OTHER_ORG, []),
        (OrgScope("unknown"), None, []),
    ],
)
def test_an_organisation_sees_its_own_alerts_only(
    data: OrgJobsData, within: OrgScope, org_id: str | None, subjects: list[str]
) -> None:
    with data.database.reading() as session:
        found = list_alerts(session, within, org_id=org_id, limit=9, offset=0)
        page = list_alerts(session, within, org_id=org_id, limit=1, offset=1)
    assert [one.subject for one in found] == subjects
    assert page == found[1:2]


def test_the_latest_alert_per_name_and_subject_is_found(data: OrgJobsData) -> None:
    with data.database.reading() as session:
        found = last_raised(session, ORG_ALERTS, ["1", "3", "9"])
    assert {key: one.at for key, one in found.items()} == {
        (OrgJobsAlertName.SERVER_DOWN, "1"): data.now,
        (OrgJobsAlertName.SERVER_DOWN, "3"): data.now,
    }
