"""A schedule with its own CRM key: preview, run and backfill; and the report of a run that can read
no day."""

import json
from collections.abc import Callable
from datetime import date

from automation_pipeline.simulator import Fiche
from automation_pipeline_tests import simulator_control
from automation_pipeline_tests.e2e.system import Installation, System

NewSystem = Callable[..., Installation]


def test_a_schedule_uses_its_own_crm_key_and_unreadable_days_are_reported(
    new_system: NewSystem, day: date, fiches: tuple[Fiche, ...]
) -> None:
    """Findings 2.1, 2.5 and 2.9."""
    system = new_system(FICHE_API_AUTH_TOKEN="a-token-that-the-crm-refuses")
    selection = {
        "mode": "date_range",
        "dateRange": "custom",
        "customStartDate": day.isoformat(),
        "maxFiches": 4,
    }
    with_key = System.create_schedule(
        system, ficheSelection=selection, externalApiKey=simulator_control.TOKEN
    )
    other = day.replace(year=2025)
    of_other_day = {**selection, "customStartDate": other.isoformat()}
    without = System.create_schedule(
        system, ficheSelection=of_other_day, webhookUrl="https://93.184.216.34/hook"
    )

    shown = system.automation("schedules", "preview", with_key)
    assert (shown["candidates"], shown["selected"]) == (len(fiches), 4)
    assert shown["counts"]["over_max_fiches"] == len(shown["dropped"]) == len(fiches) - 4
    assert {one["reason"] for one in shown["dropped"]} == {"over_max_fiches"}
    refused = system.automation("schedules", "preview", without)
    assert [one["date"] for one in refused["unreadDays"]] == [other.isoformat()]
    assert system.automation("runs", "list") == {"runs": []}

    assert system.execute_job(with_key).returncode == 0
    run = system.show_run("1")
    assert run["status"] in {"completed", "partial"}
    assert [fiche["ficheId"] for fiche in run["fiches"]] == shown["fiches"]
    assert not [fiche for fiche in run["fiches"] if fiche["reason"] == "fetch_failed"], (
        "details are asked with the key"
    )

    ended = system.execute_job(without)
    assert ended.returncode == 0, "a run that failed is a recorded outcome"
    unread = system.show_run("2")
    assert (unread["status"], unread["selectedFiches"]) == ("failed", 0)
    assert unread["errorMessage"].startswith("None of the 1 days could be read")
    [message] = system.sql("SELECT payload FROM automation_notifications WHERE run_id = 2")
    assert [one["date"] for one in json.loads(message["payload"])["failed_days"]] == [
        other.isoformat()
    ]

    output = [system.run("automation", *words).stdout for words in SECRET_FREE]
    assert simulator_control.TOKEN not in "".join(output)
    assert "**********" in output[0]

    days = ("--from", day.isoformat(), "--to", day.isoformat())
    dry = system.automation("schedules", "backfill", with_key, *days, "--dry-run")
    assert (dry["days"][0]["filed"], dry["days"][0]["runId"]) == (True, None)
    [filed] = system.automation("schedules", "backfill", with_key, *days)["days"]
    assert filed["key"] == f"automation-backfill-{with_key}-{day.isoformat()}"
    [again] = system.automation("schedules", "backfill", with_key, *days)["days"]
    assert (again["filed"], again["runId"]) == (False, filed["runId"])
    cancelled = system.automation("runs", "cancel", filed["runId"], "--yes")
    assert cancelled["status"] == "cancelled"
    assert [
        one["id"] for one in system.automation("runs", "list", "--status", "cancelled")["runs"]
    ] == [filed["runId"]]


SECRET_FREE = (
    ("schedules", "show", "1", "--json"),
    ("schedules", "list", "--json"),
    ("runs", "show", "1", "--json"),
    ("runs", "logs", "1", "--json"),
)
