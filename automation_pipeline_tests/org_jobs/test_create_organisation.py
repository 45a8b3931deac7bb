"""A new organisation: stored once, noted, and made by nobody who belongs to another."""

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Organisation,
    OrgScope,
)
from automation_pipeline.org_jobs.organisations import create_organisation
from automation_pipeline.org_jobs.queries.organisations import get_organisation, list_organisations
from automation_pipeline_tests.org_jobs.bench import Bench

WISH = {"id": "acme", "name": "Acme", "maxRunning": 3}


def created(bench: Bench, within: OrgScope = ALL_ORGANISATIONS, **fields: object) -> Organisation:
    return create_organisation(
        WISH | fields, within=within, database=bench.database, clock=bench.clock, actor="user:1"
    )


def test_it_is_stored_as_it_was_wished(org_bench: Bench) -> None:
    made = created(org_bench)
    with org_bench.database.reading() as session:
        assert get_organisation(session, "acme", ALL_ORGANISATIONS) == made
    assert (made.id, made.name, made.max_running, made.suspended_at) == ("acme", "Acme", 3, None)
    assert made.created_at == made.updated_at == org_bench.now
    [entry] = org_bench.audit("acme")
    assert (entry.org_id, entry.actor, entry.action, entry.entity) == (
        "acme",
        "user:1",
        "create",
        "organisation",
    )
    assert entry.after == {**WISH, "maintenanceUntil": None}


def test_an_id_is_given_once(org_bench: Bench) -> None:
    made = created(org_bench)
    with pytest.raises(ConflictError, match="There is an organisation 'acme' already"):
        created(org_bench, name="Other")
    with org_bench.database.reading() as session:
        assert list_organisations(session, ALL_ORGANISATIONS, limit=10, offset=0) == [made]


@pytest.mark.parametrize("org_id", ["acme", "globex"])
def test_who_belongs_to_one_makes_no_others(org_id: str, org_bench: Bench) -> None:
    with pytest.raises(ConflictError, match="makes no others"):
        created(org_bench, OrgScope(org_id))
    with org_bench.database.reading() as session:
        assert list_organisations(session, ALL_ORGANISATIONS, limit=10, offset=0) == []


def test_a_wrong_wish_stores_nothing(org_bench: Bench) -> None:
    with pytest.raises(InvalidInputError):
        created(org_bench, maxRunning=0)
    assert org_bench.audit() == []
