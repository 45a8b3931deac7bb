"""Recording URLs in responses."""

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from automation_pipeline.api.permissions import RULES
from automation_pipeline.audits.tables import CitationRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Permission
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer

SECRET = "https://records.example.test/secret-of-7"
ALL_BUT_RECORDINGS = {
    f"{permission}.{action}": "ALL"
    for permission in Permission
    if permission is not Permission.RECORDINGS
    for action in ("read", "write")
}


@pytest.fixture
def audited(services: Services, clock: FakeClock) -> dict[str, str]:
    """An audited fiche of the groupe TEAM R1 with a cited call. Returns the values of path parameters."""
    bench = AuditHarness(services.database, clock, model=FakeLanguageModel(step_answer))
    bench.sell("7")
    status = bench.audit("7", bench.configure(steps=1))
    with services.database.transaction() as session:
        session.execute(update(CallRecordingRow).values(recording_url=SECRET))
        session.execute(
            update(CitationRow).values(recording_url=SECRET, texte=f"Bonjour, voir {SECRET}.")
        )
        call_id = session.query(CallRecordingRow.call_id).first()
    assert call_id
    return {
        "fiche_id": "7",
        "audit_id": str(status.audit_id),
        "call_id": call_id[0],
        "step_position": "1",
        "position": "1",
    }


def routes_showing_url(client: TestClient, names: dict[str, str]) -> set[str]:
    """The routes whose response contains the recording URL."""
    found: set[str] = set()
    for (method, path), rule in RULES.items():
        if (
            method == "GET"
            and not rule.public
            and "diagnostic" not in path
            and "events" not in path
        ):
            address = re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "1"), path)
            if SECRET in client.get(address).text:
                found.add(path)
    return found


def test_recording_urls_need_the_recordings_permission_on_every_route(
    login: Login, audited: dict[str, Any]
) -> None:
    everything = login({**ALL_BUT_RECORDINGS, "recordings.read": "ALL"})
    with_address = routes_showing_url(everything, audited)
    assert "/api/transcriptions/{fiche_id}/recordings/{call_id}" in with_address
    assert any(path.startswith("/api/audits/") for path in with_address), with_address
    assert routes_showing_url(login(ALL_BUT_RECORDINGS), audited) == set()


def test_recording_urls_are_shown_only_for_the_groupes_of_the_caller(
    login: Login, audited: dict[str, Any]
) -> None:
    grants = {**ALL_BUT_RECORDINGS, "recordings.read": "GROUP"}
    assert routes_showing_url(login(grants, groupes=["NORD"]), audited) == set()
    everything = login({**ALL_BUT_RECORDINGS, "recordings.read": "ALL"})
    assert routes_showing_url(login(grants, groupes=["TEAM R1"]), audited) == routes_showing_url(
        everything, audited
    )
