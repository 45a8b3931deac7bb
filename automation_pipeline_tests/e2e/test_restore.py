"""A backup made during a run is restored after the loss of everything else: the run ends, and can
be repeated."""

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.simulator_control import add_faults, clear_faults, running_simulator

# Two heartbeats and a few passes of the watchdog.
LOST = {"AUTOMATION_HEARTBEAT_SECONDS": "0.5", "AUTOMATION_LOST_AFTER_SECONDS": "5"}


def test_a_run_that_was_backed_up_while_running_ends_and_is_repeated(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    """The restored DAGSTER_HOME is empty: the watchdog continues the run, or closes it for a retry."""
    ids = [fiche.id for fiche in fiches if fiche.kind is Kind.ORDINARY]
    with running_simulator("--exact", "--fiches-per-day", "24") as url:
        before = new_system(kind="sqlite", at=url, **LOST)
        after = new_system(kind="sqlite", at=url, **LOST)
        (after.folder / "automation.db").unlink()
        add_faults(
            url,
            *({"route": "crm.details", "item": fiche_id, "hang": True} for fiche_id in ids[-4:]),
        )
        copy = str(before.folder / "copy")
        with before.daemon():
            before.run_now(before.create_schedule(ids))
            fetched = (
                "SELECT count(*) AS n FROM automation_run_fiche_results WHERE stage = 'fetched'"
            )
            before.wait_for(f"SELECT 1 FROM ({fetched}) AS counted WHERE n >= 5")  # noqa: S608  a constant of this test
            assert before.automation("db", "backup", copy)["bytes"] > 0
        clear_faults(url)
        assert after.automation("db", "restore", copy)["revision"]
        assert after.show_run("1")["status"] == "running"
        with after.daemon():
            ended, again = after.wait_for_end("1"), None
            if ended["status"] != "completed":
                again = after.wait_for_end(after.automation("runs", "retry", "1")["run_id"])
        fresh = after.run_now(after.create_schedule(ids[:1]))
    assert int(fresh) > 1_000_000, "ids that were given after the copy are not given again"
    assert [fiche["ficheId"] for fiche in ended["fiches"]] == ids
    assert (
        ended["selectedFiches"]
        == ended["successfulFiches"] + ended["failedFiches"] + ended["ignoredFiches"]
    )
    if again is not None:
        missing = {fiche["ficheId"] for fiche in ended["fiches"] if fiche["status"] != "successful"}
        assert (again["status"], {fiche["ficheId"] for fiche in again["fiches"]}) == (
            "completed",
            missing,
        )
