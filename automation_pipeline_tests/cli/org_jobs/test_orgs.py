"""Tests of the commands for organisations, hosts, servers, alerts, and the audit log."""

from datetime import UTC, datetime

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.core.clock import SystemClock, iso
from automation_pipeline.org_jobs.queries.health import ORG_ALERTS
from automation_pipeline.org_jobs.rules.health import OrgJobsAlertName
from automation_pipeline.storage.alerts import add_alerts
from automation_pipeline_tests.cli.org_jobs.commands import OrgJobsCommands


def test_an_organisation_can_be_created_updated_and_shown(without_org: OrgJobsCommands) -> None:
    made = without_org.json("orgs", "create", "acme", "--name", "Acme [EU]", "--max-running", "3")
    assert (made["id"], made["name"], made["maxRunning"]) == ("acme", "Acme [EU]", 3)
    assert (
        without_org.json("orgs", "create", "--file", "-", given={"id": "globex", "name": "Globex"})[
            "maxRunning"
        ]
        == 10
    )
    until = ("--maintenance-until", "2127-01-01T01:00:00+01:00")
    assert (
        without_org.json("orgs", "update", "acme", *until)["maintenanceUntil"]
        == "2127-01-01T00:00:00.000Z"
    )
    shown = without_org.printed("orgs", "show", "acme")
    assert (
        "organisation acme Acme [EU] state in service at once 3 jobs at most maintenance until 2127-01-01"
        in shown
    )
    assert (
        without_org.json("orgs", "update", "acme", "--end-maintenance")["maintenanceUntil"] is None
    )
    assert [one["id"] for one in without_org.json("orgs", "list")["organisations"]] == [
        "acme",
        "globex",
    ]
    assert without_org.printed("orgs", "list", "--limit", "1").endswith(
        "There are more rows: --offset 1 shows the next page."
    )
    assert without_org.refused("orgs", "create", "acme", "--name", "Again").startswith(
        "There is an organisation 'acme'"
    )
    assert "id: must consist of lower-case letters" in without_org.refused(
        "orgs", "create", "A!", "--name", "x", code=2
    )


def test_suspending_an_organisation_suspends_its_schedules(org_jobs: OrgJobsCommands) -> None:
    schedule_id = org_jobs.schedule()
    suspended = org_jobs.json("orgs", "suspend", "acme", "--reason", "Unpaid [bill]")
    assert suspended["suspendedAt"] is not None
    assert "Unpaid [bill]" in org_jobs.printed("orgs", "show", "acme")
    assert org_jobs.json("schedules", "show", schedule_id)["state"] == "PAUSED"
    assert "state in service" in org_jobs.printed("orgs", "resume", "acme")
    assert org_jobs.json("schedules", "show", schedule_id)["state"] == "ACTIVE"


MAY = datetime(2026, 5, 1, 8, 30, 15, tzinfo=UTC)


def test_stored_organisations_hosts_and_servers_are_shown_in_full(
    org_jobs: OrgJobsCommands,
) -> None:
    data = org_jobs.data
    suspended = {"suspended_at": MAY, "suspend_reason": "Un\npaid", "created_at": MAY}
    data.organisation("acme", **suspended, maintenance_until=MAY)
    maintenance = "maintenance until 2026-05-01 08:30 UTC: jobs that are due before are skipped"
    created = "created 2026-05-01 08:30 UTC"
    assert org_jobs.printed("orgs", "show", "acme") == (
        "organisation acme Acme state suspended suspended 2026-05-01 08:30 UTC: Un paid "
        f"at once 10 jobs at most {maintenance} {created}"
    )
    assert org_jobs.printed("orgs", "list") == (
        "id name state at once maintenance until (UTC) acme Acme suspended 10 2026-05-01 08:30"
    )
    seen = {
        "last_seen_at": MAY,
        "agent_version": "1.0",
        "maintenance_until": MAY,
        "created_at": MAY,
    }
    data.host("acme", "box", **seen)
    data.host("acme", "new", last_seen_at=None, created_at=MAY)
    assert org_jobs.printed("hosts", "show", "1") == (
        f"host 1 box organisation acme agent 1.0 last seen 2026-05-01 08:30 UTC {maintenance} {created}"
    )
    assert org_jobs.printed("hosts", "show", "2") == (
        f"host 2 new organisation acme last seen never {created}"
    )
    assert org_jobs.printed("hosts", "list") == (
        "id organisation name agent last seen (UTC) maintenance until (UTC) "
        "1 acme box 1.0 2026-05-01 08:30 2026-05-01 08:30 2 acme new never"
    )
    data.server("acme", "main", host_id=1, created_at=MAY)
    data.server("acme", "spare", is_enabled=False, created_at=MAY)
    assert org_jobs.printed("servers", "show", "1") == (
        f"server 1 main organisation acme host 1 state enabled {created}"
    )
    assert org_jobs.printed("servers", "show", "2") == (
        "server 2 spare organisation acme host none: its jobs wait until it has one state disabled "
        f"{created}"
    )
    assert org_jobs.printed("servers", "list") == (
        "id organisation name host state 1 acme main 1 enabled 2 acme spare disabled"
    )


def test_hosts_show_the_last_heartbeat_of_their_agent(org_jobs: OrgJobsCommands) -> None:
    host_id = org_jobs.json("hosts", "create", "--name", "paris [1]")["id"]
    assert f"{host_id} acme paris [1] never" in org_jobs.printed("hosts", "list")
    now = org_jobs.data.now
    org_jobs.data.set_host(int(host_id), last_seen_at=now, agent_version="1.2")
    assert f"agent 1.2 last seen {now:%Y-%m-%d %H:%M} UTC" in org_jobs.printed(
        "hosts", "show", host_id
    )
    assert org_jobs.json("hosts", "list", "--org", "acme")["hosts"][0]["lastSeenAt"] == iso(now)
    assert org_jobs.json("hosts", "update", host_id, "--name", "lyon-1")["name"] == "lyon-1"
    message = org_jobs.refused("hosts", "delete", host_id, code=2)
    assert message == f"Standard input is not a terminal: add --yes to delete host {host_id}."
    assert org_jobs.json("hosts", "delete", host_id, "--yes") == {"id": host_id, "deleted": True}


def test_servers_can_be_moved_and_deactivated(org_jobs: OrgJobsCommands) -> None:
    server_id = org_jobs.server("lobby [3]")
    host_id = org_jobs.json("hosts", "create", "--name", "lyon-1")["id"]
    moved = org_jobs.json("servers", "update", server_id, "--host", host_id, "--disabled")
    assert (moved["hostId"], moved["isEnabled"]) == (host_id, False)
    assert f"{server_id} acme lobby [3] {host_id} disabled" in org_jobs.printed(
        "servers", "list", "--org", "acme"
    )
    assert "host none: its jobs wait" in org_jobs.printed(
        "servers", "update", server_id, "--no-host"
    )
    refused = org_jobs.run("servers", "delete", server_id, given=b"n\n", is_interactive=True)
    assert refused.code == 130
    assert f"Delete server {server_id}, lobby [3]?" in refused.err
    assert (
        org_jobs.printed("servers", "delete", server_id, "--yes")
        == f"Server {server_id} is deleted."
    )


def test_a_host_with_servers_cannot_be_deleted(org_jobs: OrgJobsCommands) -> None:
    org_jobs.server()
    assert "Host 1 has 1 server" in org_jobs.refused("hosts", "delete", "1", "--yes")


def test_alerts_are_listed_newest_first(org_jobs: OrgJobsCommands) -> None:
    raised = [
        AlertCondition(
            org_id=org_id,
            name=OrgJobsAlertName.SCHEDULE_FAILED,
            severity=AlertSeverity.WARNING,
            subject="s-1",
            message=f"Failed [{number}] times",
        )
        for number, org_id in enumerate(["acme", None])
    ]
    with org_jobs.terminal.database.transaction() as session:
        add_alerts(session, ORG_ALERTS, raised, SystemClock().now(), {})
    assert [one["id"] for one in org_jobs.json("alerts")["alerts"]] == ["2", "1"]
    assert org_jobs.json("alerts", "--limit", "1")["more"] is True
    assert [one["orgId"] for one in org_jobs.json("alerts", "--org", "acme")["alerts"]] == ["acme"]
    assert "acme schedule_failed warning s-1 Failed [0] times unsent" in org_jobs.printed(
        "alerts", "--org", "acme"
    )


def test_the_audit_log_lists_actors_and_actions_newest_first(org_jobs: OrgJobsCommands) -> None:
    org_jobs.org("globex")
    org_jobs.json("orgs", "update", "acme", "--name", "New [name]")
    log = org_jobs.json("audit-log", "--org", "acme")["log"]
    assert [(one["entity"], one["action"]) for one in log] == [
        ("organisation", "update"),
        ("organisation", "create"),
    ]
    assert 'cli:ada update organisation acme name: "Acme" -> "New [name]"' in org_jobs.printed(
        "audit-log"
    )
    page = org_jobs.json("audit-log", "--limit", "1")
    assert page["more"] is True
    older = org_jobs.json("audit-log", "--after", page["log"][0]["id"])["log"]
    assert [one["orgId"] for one in older] == ["globex", "acme"]
