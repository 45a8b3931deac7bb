"""Requests as they are written, and the row through which all goes that happens to a SIREN."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.enrichment.models import EnrichmentStatus
from automation_pipeline.enrichment.queries.requests import (
    known_request,
    locked_enrichment,
    move_enrichment,
    request_of,
)
from automation_pipeline_tests.enrichment.bench import Bench, asking
from automation_pipeline_tests.enrichment.scripted import SIREN


def test_the_row_of_a_siren_is_made_once(bench: Bench) -> None:
    made = bench.clock.now()
    for _ in range(2):
        with bench.database.transaction() as session:
            row = locked_enrichment(session, SIREN, bench.pass_time(seconds=1))
    assert (row.status, row.created_at) == ("PENDING", made.replace(second=1))


def test_a_move_that_is_not_legal_leaves_nothing_behind(bench: Bench) -> None:
    bench.request()
    with bench.database.transaction() as session:
        row = locked_enrichment(session, SIREN, bench.clock.now())
        with pytest.raises(IllegalMoveError):
            move_enrichment(session, row, EnrichmentStatus.SUCCESS, "user:1", bench.clock.now())
    assert (bench.enrichment().status, bench.moves()) == ("PENDING", [])


def test_a_request_is_found_by_its_tenant_only(bench: Bench) -> None:
    asked = bench.request(tenant="t1", key="k1")
    with bench.database.reading() as session:
        assert request_of(session, asked.request_id, "t1").company_siren == SIREN
        with pytest.raises(NotFoundError):
            request_of(session, asked.request_id, "t2")


@pytest.mark.parametrize(
    ("tenant", "key", "found"), [("t1", "k1", True), ("t2", "k1", False), ("t1", None, False)]
)
def test_a_request_is_known_by_its_tenants_key(
    bench: Bench, tenant: str, key: str | None, found: bool
) -> None:
    bench.request(tenant="t1", key="k1")
    bench.request(tenant="t1")
    with bench.database.reading() as session:
        assert (known_request(session, asking(tenant, key)) is not None) is found
