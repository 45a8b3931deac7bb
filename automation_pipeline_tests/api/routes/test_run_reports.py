"""Run reports: access, and parsing by the API client."""

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.automation.queries.reports import parse_report, report_document, run_report
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import UpstreamError
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.days import answer_by_transcript
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import make_reported_run
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel


@pytest.fixture
def run_id(services: Services, clock: FakeClock) -> int:
    run_id = make_reported_run(
        AuditHarness(services.database, clock, model=FakeLanguageModel(answer_by_transcript))
    )
    with services.database.transaction() as session:
        session.get_one(RunRow, run_id).error_details = {"stack": "secret lines", "failed_days": []}
    return run_id


def test_a_report_survives_a_round_trip_without_stack_traces(
    client: TestClient, services: Services, run_id: int
) -> None:
    answered = client.get(f"/api/automation/runs/{run_id}/report")
    assert (answered.status_code, "secret lines" in answered.text) == (200, False)
    back = parse_report(answered.json()["data"])
    with services.database.reading() as session:
        report = run_report(session, run_id)
    assert report_document(back) == report_document(report)
    assert (back.causes, back.audits, back.fiches) == (report.causes, report.audits, report.fiches)


def test_a_report_needs_the_scope_all(login: Login, run_id: int) -> None:
    own = login({"automation.read": "SELF"}).get(f"/api/automation/runs/{run_id}/report")
    whole = login({"automation.read": "ALL"}).get(f"/api/automation/runs/{run_id}/report")
    assert (own.status_code, whole.status_code) == (404, 200)


@every_case("document", [{}, {"causes": [{}]}, {"causes": [], "run": 1}, {"causes": None}])
def test_a_malformed_report_is_an_upstream_error(document: dict[str, object]) -> None:
    with pytest.raises(UpstreamError, match="the API is of another version"):
        parse_report(document)
