"""Recording URLs in responses."""

import json
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update
from starlette.requests import Request
from starlette.responses import JSONResponse

from automation_pipeline.api.guard import without_recording_urls
from automation_pipeline.api.permissions import RULES, Entity, Rule
from automation_pipeline.audits.tables import CitationRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Grant, Permission, Scope
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
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
    harness = AuditHarness(services.database, clock, model=FakeLanguageModel(step_answer))
    harness.sell("7")
    status = harness.audit("7", harness.configure(steps=1))
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


URL = "https://records.example.test/1"
NORD, SUD = {"fiche_id": "7"}, {"fiche_id": "8"}
ANY_ROUTE, FICHE_ROUTE = Rule(None), Rule(None, entity=Entity.FICHE)


def filtered(services: Services, caller: Caller, rule: Rule, document: object, **path: str) -> Any:
    """Filter a response; return its document, after checking its length."""
    response = JSONResponse(document)
    request = SimpleNamespace(
        state=SimpleNamespace(caller=caller),
        app=SimpleNamespace(state=SimpleNamespace(services=services)),
        path_params=path,
    )
    without_recording_urls(response, cast("Request", request), rule)
    assert response.headers["content-length"] == str(len(response.body))
    return json.loads(bytes(response.body))


def test_urls_of_hidden_fiches_are_removed_at_every_depth(services: Services) -> None:
    with services.database.transaction() as session:
        for fiche_id, groupe in (("7", "NORD"), ("8", "SUD")):
            times = {"fetched_at": services.clock.now(), "expires_at": services.clock.now()}
            session.add(FicheCacheRow(fiche_id=fiche_id, groupe=groupe, raw_data={}, **times))
    grants = {Permission.RECORDINGS: Grant(Scope.GROUP)}
    nord = Caller("user:1", grants, groupes=frozenset({"NORD"}))
    shown: list[tuple[Rule, dict[str, str], object]] = [
        (ANY_ROUTE, {}, {"recording_url": None, "note": URL}),
        (ANY_ROUTE, {}, [{**NORD, "recording_url": URL}]),
        (ANY_ROUTE, {}, {"ficheId": "7", "calls": [{"recordingUrl": URL}]}),
        (ANY_ROUTE, {}, {"id": "7", "recordings": [{"recording_url": URL}]}),
        (ANY_ROUTE, {}, {"fiche": NORD, "recording_url": URL, "text": f"see {URL}"}),
        (FICHE_ROUTE, {"fiche_id": "7"}, {"data": {"recording_url": URL}}),
    ]
    for rule, path, document in shown:
        assert filtered(services, nord, rule, document, **path) == document
    hidden: list[tuple[Rule, dict[str, str], object, object]] = [
        (ANY_ROUTE, {}, {"recording_url": URL}, {"recording_url": None}),
        (ANY_ROUTE, {}, [{**SUD, "recordingUrl": URL}], [{**SUD, "recordingUrl": None}]),
        (
            ANY_ROUTE,
            {},
            {"id": "8", "recordings": [{"recording_url": URL}]},
            {"id": "8", "recordings": [{"recording_url": None}]},
        ),
        (ANY_ROUTE, {}, {"id": "7", "recording_url": URL}, {"id": "7", "recording_url": None}),
        (
            ANY_ROUTE,
            {},
            {"fiche": SUD, "recording_url": URL, "texts": [f"see {URL}", 1, None]},
            {"fiche": SUD, "recording_url": None, "texts": ["see [hidden]", 1, None]},
        ),
        (ANY_ROUTE, {}, {"recording_url": "none", "a": "none"}, {"recording_url": None, "a": "none"}),
        (
            FICHE_ROUTE,
            {"fiche_id": "8"},
            {"data": {"recording_url": URL}},
            {"data": {"recording_url": None}},
        ),
        (
            FICHE_ROUTE,
            {"fiche_id": "7"},
            [{**SUD, "recording_url": URL}, {"recordingUrl": f"{URL}/2"}],
            [{**SUD, "recording_url": None}, {"recordingUrl": "[hidden]/2"}],
        ),
    ]  # fmt: skip
    for rule, path, document, expected in hidden:
        assert filtered(services, nord, rule, document, **path) == expected


def test_urls_depend_on_the_permission_for_recordings(services: Services) -> None:
    document = {**NORD, "recording_url": URL, "note": f"é {URL}"}
    stranger = Caller("user:1", {})
    everyone = Caller("user:1", {Permission.RECORDINGS: Grant(Scope.ALL)})
    writer = Caller("user:1", {Permission.RECORDINGS: Grant(None, Scope.ALL)})
    expected = {**NORD, "recording_url": None, "note": "é [hidden]"}
    assert filtered(services, stranger, FICHE_ROUTE, document, fiche_id="7") == expected
    assert filtered(services, writer, FICHE_ROUTE, document, fiche_id="7") == expected
    assert filtered(services, everyone, FICHE_ROUTE, document, fiche_id="7") == document
