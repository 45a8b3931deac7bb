"""A change of an organisation: what is named changes, and is noted; another's is not there."""

from datetime import timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Organisation,
    OrgScope,
)
from automation_pipeline.org_jobs.organisations import update_organisation
from automation_pipeline_tests.org_jobs.bench import ACTOR, OTHER_ORG, Bench


def updated(
    bench: Bench,
    patch: dict[str, object],
    org_id: str = "acme",
    within: OrgScope = ALL_ORGANISATIONS,
) -> Organisation:
    return update_organisation(
        org_id, patch, within=within, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def test_what_is_named_changes_and_is_noted(org_bench: Bench) -> None:
    org_bench.organisation(max_running=5)
    until = org_bench.now + timedelta(hours=1)
    org_bench.pass_minutes(1)
    changed = updated(org_bench, {"maxRunning": 7, "maintenanceUntil": iso(until)})
    assert (changed.name, changed.max_running, changed.maintenance_until) == ("Acme", 7, until)
    assert changed.updated_at == org_bench.now > changed.created_at
    [entry] = org_bench.audit("acme")
    assert entry.before == {"maxRunning": 5, "maintenanceUntil": None}
    assert entry.after == {"maxRunning": 7, "maintenanceUntil": iso(until)}
    assert updated(org_bench, {"maintenanceUntil": None}).maintenance_until is None


@pytest.mark.parametrize("patch", [{}, {"name": " Acme "}])
def test_what_says_nothing_new_changes_nothing(patch: dict[str, object], org_bench: Bench) -> None:
    org_bench.organisation()
    org_bench.pass_minutes(1)
    assert updated(org_bench, patch).updated_at < org_bench.now
    assert org_bench.audit() == []


@pytest.mark.parametrize(
    "patch", [{"name": None}, {"maxRunning": 0}, {"id": "other"}, {"suspendedAt": None}]
)
def test_a_wrong_patch_changes_nothing(patch: dict[str, object], org_bench: Bench) -> None:
    org_bench.organisation()
    with pytest.raises(InvalidInputError):
        updated(org_bench, {"name": "New", **patch})
    assert org_bench.organisation_row().name == "Acme"


@pytest.mark.parametrize("org_id", [OTHER_ORG, "nobody", "a\0", "\ud800"])
def test_anothers_is_not_there(org_id: str, org_bench: Bench) -> None:
    org_bench.organisation()
    org_bench.organisation(OTHER_ORG)
    with pytest.raises(NotFoundError, match=r"^Organisation .* not found$"):
        updated(org_bench, {"name": "New"}, org_id, OrgScope("acme"))
    assert org_bench.organisation_row(OTHER_ORG).name == "Globex"
