"""Automation runs, as people ask for them: by the HTTP API, the command line and `dagster job execute`."""

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests.e2e.system import Installation


def test_a_day_is_selected_fetched_transcribed_and_audited(
    installation: Installation, fiches: tuple[Fiche, ...]
) -> None:
    """The daemon does it; every fiche ends with one outcome, and no provider is asked twice for the same work."""
    ids = [fiche.id for fiche in fiches]
    schedule_id = installation.create_schedule(ids, runTranscription=True, runAudits=True)
    run = installation.wait_for_end(installation.run_now(schedule_id))
    assert run["selectedFiches"] == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"] == len(ids)
    statuses = {fiche["ficheId"]: fiche["status"] for fiche in run["fiches"]}
    assert set(statuses) == set(ids)
    assert {i for i in ids if statuses[i] == "ignored"} == {each.id for each in fiches if each.kind is Kind.MISSING}
    assert run["status"] == ("partial" if run["failedFiches"] else "completed")
    with_calls = {f["ficheId"] for f in run["fiches"] if f["status"] == "successful" and f["recordingsCount"]}
    query = "SELECT f.fiche_id FROM audits a JOIN fiche_cache f ON f.id = a.fiche_cache_id WHERE a.status = 'completed'"
    audited = {row["fiche_id"] for row in installation.sql(f"{query} AND a.automation_run_id = :id", id=run["id"])}
    assert with_calls
    assert with_calls <= audited
    assert {installation.calls("crm.details")[i] for i in ids} == {1}
