"""Organisations, hosts and servers on a screen."""

from collections.abc import Iterable
from datetime import datetime

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute
from automation_pipeline.cli.output import one_line, print_facts
from automation_pipeline.org_jobs.domain.organisation import Host, Organisation, Server


def print_organisations(organisations: Iterable[Organisation]) -> None:
    print_fitted_table(
        ("id", "name", "state", "at once", "maintenance until (UTC)"),
        ((one.id, one.name, _state(one), one.max_running, minute(one.maintenance_until)) for one in organisations),
        texts={"name"},
    )


def print_organisation(one: Organisation) -> None:
    print_facts(
        {
            "organisation": f"{one.id}  {one.name}",
            "state": _state(one),
            "suspended": one.suspended_at and f"{minute(one.suspended_at)} UTC{_why(one.suspend_reason)}",
            "at once": f"{one.max_running} jobs at most",
            "maintenance": _until(one.maintenance_until),
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def print_hosts(hosts: Iterable[Host]) -> None:
    print_fitted_table(
        ("id", "organisation", "name", "agent", "last heard of (UTC)", "maintenance until (UTC)"),
        (
            (one.id, one.org_id, one.name, one.agent_version, _heard_of(one.last_seen_at),
             minute(one.maintenance_until))
            for one in hosts
        ),
        texts={"name", "agent"},
    )  # fmt: skip


def print_host(one: Host) -> None:
    print_facts(
        {
            "host": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "agent": one.agent_version,
            "last heard of": f"{minute(one.last_seen_at)} UTC" if one.last_seen_at else "never",
            "maintenance": _until(one.maintenance_until),
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def print_servers(servers: Iterable[Server]) -> None:
    print_fitted_table(
        ("id", "organisation", "name", "host", "state"),
        ((one.id, one.org_id, one.name, one.host_id, _in_use(one)) for one in servers),
        texts={"name"},
    )


def print_server(one: Server) -> None:
    print_facts(
        {
            "server": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "host": one.host_id or "none: its jobs wait until it has one",
            "state": _in_use(one),
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def _state(one: Organisation) -> Text:
    return Text("in service", "green") if one.suspended_at is None else Text("suspended", "red")


def _in_use(one: Server) -> str:
    return "enabled" if one.is_enabled else "disabled"


def _why(reason: str | None) -> str:
    return f": {one_line(reason)}" if reason else ""


def _until(instant: datetime | None) -> str | None:
    return f"until {minute(instant)} UTC: what falls due before is left out" if instant else None


def _heard_of(instant: datetime | None) -> str:
    return minute(instant) or "never"
