"""Scope by every spelling and every way round: what is hidden stays hidden."""

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.api.permissions import RULES, Entity
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.tables import every_case

SCHEDULES = "/api/automation/schedules"
BOTH = {"automation.read": "GROUP", "automation.write": "GROUP"}
OF_ALL: dict[str, Any] = {
    "name": "Of all",
    "scheduleType": "MANUAL",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"},
}
NUMBERED = [
    pytest.param(method, path, rule, id=f"{method} {path}")
    for (method, path), rule in RULES.items()
    if rule.entity in {Entity.AUDIT, Entity.RUN, Entity.SCHEDULE}
]


def of_groupes(*groupes: str) -> dict[str, Any]:
    selection = {"mode": "date_range", "dateRange": "yesterday", "groupes": list(groupes)}
    return {"name": "Of some", "scheduleType": "MANUAL", "ficheSelection": selection}


def stored(client: TestClient, schedule: dict[str, Any]) -> str:
    return client.post(SCHEDULES, json=schedule).json()["data"]["id"]


def triggered(client: TestClient, schedule_id: str, **more: Any) -> Any:
    return client.post("/api/automation/trigger", json={"scheduleId": schedule_id, **more})


@every_case(("method", "path", "rule"), NUMBERED)
def test_an_id_is_written_one_way(
    client: TestClient, login: Login, method: str, path: str, rule: Any
) -> None:
    """What the check of scopes and the endpoint would read differently would come past the
    check."""
    stored(client, OF_ALL)
    triggered(client, "1")
    limited = login({f"{rule.permission}.{rule.action}": "GROUP"}, groupes=["NORD"])
    for spelling in ("+1", "%201", "1.0", "0_1", "1%0a", "01", "0" * 20 + "1", "1e0", "９"):
        asked = re.sub(r"\{\w+\}", "1", path.replace(f"{{{rule.entity}}}", spelling))
        answered = limited.request(method, asked)
        assert answered.status_code == 400, (asked, answered.text)


def test_a_fiche_that_is_written_otherwise_is_another_fiche(
    client: TestClient, login: Login, database: Database, clock: StandingClock
) -> None:
    row = FicheCacheRow(
        fiche_id="77", groupe="SUD", raw_data={}, fetched_at=clock.now(), expires_at=clock.now()
    )
    with database.transaction() as session:
        session.add(row)
    nord = login({"transcriptions.write": "GROUP", "fiches.read": "GROUP"}, groupes=["NORD"])
    for spelling in ("77", "0" * 24 + "77", "+77", "%2077"):
        assert nord.post(f"/api/transcriptions/{spelling}").status_code == 404
        assert nord.get(f"/api/fiches/{spelling}").status_code == 404


@pytest.mark.parametrize("scope", ["SELF", "GROUP"])
def test_a_selection_has_one_name(login: Login, scope: str) -> None:
    limited = login({"automation.write": scope}, groupes=["NORD"])
    schedule = {**OF_ALL, "fiche_selection": OF_ALL["ficheSelection"]}
    del schedule["ficheSelection"]
    answered = limited.post(SCHEDULES, json=schedule)
    assert answered.status_code == 400
    assert {"fiche_selection", "ficheSelection"} == {
        fault["field"] for fault in answered.json()["details"]
    }


def test_a_schedule_cannot_be_made_in_the_name_of_others(login: Login) -> None:
    nord = login(BOTH, groupes=["NORD"])
    made = nord.post(SCHEDULES, json={**of_groupes("NORD"), "createdBy": "user:1"}).json()["data"]
    assert made["createdBy"] == "user:12"
    changed = nord.patch(f"{SCHEDULES}/{made['id']}", json={"createdBy": "user:1"}).json()["data"]
    assert changed["createdBy"] == "user:12"


class TestARunIsJudgedByWhatItWasAbout:
    def test_not_by_what_its_schedule_has_become(self, client: TestClient, login: Login) -> None:
        schedule_id = stored(client, OF_ALL)
        run_id = triggered(client, schedule_id).json()["run_id"]
        client.patch(
            f"{SCHEDULES}/{schedule_id}",
            json={"ficheSelection": of_groupes("NORD")["ficheSelection"]},
        )
        nord = login(BOTH, groupes=["NORD"])
        assert (
            nord.get(f"{SCHEDULES}/{schedule_id}").json()["data"]["runs"] != []
        )  # it waits: it will be of NORD
        client.post(f"/api/automation/runs/{run_id}/cancel")
        other = triggered(
            client, schedule_id, overrideFicheSelection=of_groupes("SUD")["ficheSelection"]
        )
        hidden = other.json()["run_id"]
        for path in ("", "/logs", "/fiches", "/events", "/report"):
            assert nord.get(f"/api/automation/runs/{hidden}{path}").status_code == 404
        assert nord.post(f"/api/automation/runs/{hidden}/retry").status_code == 404
        shown = {run["id"] for run in nord.get("/api/automation/runs").json()["data"]}
        assert hidden not in shown
        assert shown == {
            run["id"] for run in nord.get(f"{SCHEDULES}/{schedule_id}/runs").json()["data"]
        }
        assert shown == {
            run["id"] for run in nord.get(f"{SCHEDULES}/{schedule_id}").json()["data"]["runs"]
        }

    def test_which_fiches_it_was_told_to_take_is_for_those_who_see_all(
        self, client: TestClient, login: Login
    ) -> None:
        schedule_id = stored(client, of_groupes("NORD"))
        named = {"mode": "manual", "ficheIds": ["77"], "groupes": ["NORD"]}
        run_id = triggered(client, schedule_id, overrideFicheSelection=named).json()["run_id"]
        client.post(f"/api/automation/runs/{run_id}/cancel")
        nord = login(BOTH, groupes=["NORD"])
        assert "77" in str(
            client.get(f"/api/automation/runs/{run_id}").json()["data"]["configSnapshot"]
        )
        shown = nord.get(f"/api/automation/runs/{run_id}").json()["data"]
        assert "77" not in str(shown["configSnapshot"])
        assert {str(line["metadata"]) for line in shown["logs"]} <= {"{}"}

    def test_pages_are_of_what_is_seen(self, client: TestClient, login: Login) -> None:
        for groupe in ("NORD", "SUD", "NORD", "SUD", "NORD"):
            triggered(client, stored(client, of_groupes(groupe)))
        nord = login(BOTH, groupes=["NORD"])
        pages = [
            nord.get("/api/automation/runs", params={"limit": 2, "offset": at}).json()["data"]
            for at in (0, 2, 4)
        ]
        assert [[run["id"] for run in page] for page in pages] == [["5", "3"], ["1"], []]


def test_no_path_leads_elsewhere(client: TestClient) -> None:
    answered = client.get("/health/", headers={"Host": "evil.example"}, follow_redirects=False)
    assert (answered.status_code, answered.json()["code"]) == (404, "NOT_FOUND")
