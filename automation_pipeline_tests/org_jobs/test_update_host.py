"""A change of a host: what is named changes; another organisation's is not there."""

from datetime import timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, Host, OrgScope
from automation_pipeline.org_jobs.organisations import update_host
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def updated(
    bench: Bench, host_id: int, patch: dict[str, object], within: OrgScope = ALL_ORGANISATIONS
) -> Host:
    return update_host(
        host_id, patch, within=within, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def test_what_is_named_changes_and_is_noted(org_bench: Bench) -> None:
    host_id = org_bench.host(name="eu-1")
    until = org_bench.now + timedelta(hours=2)
    changed = updated(org_bench, host_id, {"maintenanceUntil": iso(until)}, OrgScope(ORG))
    assert (changed.name, changed.maintenance_until) == ("eu-1", until)
    assert changed.last_seen_at == org_bench.host_row(host_id).last_seen_at
    [entry] = org_bench.audit(str(host_id))
    assert (entry.before, entry.after) == (
        {"maintenanceUntil": None},
        {"maintenanceUntil": iso(until)},
    )
    assert updated(org_bench, host_id, {"name": "eu-1"}) == changed


def test_the_name_of_another_is_taken(org_bench: Bench) -> None:
    one, _ = org_bench.host(name="eu-1"), org_bench.host(name="eu-2")
    org_bench.host(OTHER_ORG, name="eu-3")
    with pytest.raises(ConflictError, match="has a host 'eu-2' already"):
        updated(org_bench, one, {"name": "eu-2"})
    assert updated(org_bench, one, {"name": "eu-3"}).name == "eu-3"


def test_anothers_is_not_there(org_bench: Bench) -> None:
    theirs = org_bench.host(OTHER_ORG, name="theirs")
    for host_id in (theirs, theirs + 99):
        with pytest.raises(NotFoundError, match=f"^Host {host_id} not found"):
            updated(org_bench, host_id, {"name": "ours"}, OrgScope(ORG))
    assert org_bench.host_row(theirs).name == "theirs"
