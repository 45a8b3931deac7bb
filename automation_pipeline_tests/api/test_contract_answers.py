"""In whose name a caller asks for companies."""

from automation_pipeline.core.access import Caller
from automation_pipeline.core.logs import correlated
from automation_pipeline.enrichment.routes import requester_of
from automation_pipeline_tests.tables import every_case


@every_case(("org_id", "tenant"), [(None, "main"), ("acme", "acme")])
def test_who_belongs_to_an_organisation_asks_as_that(org_id: str | None, tenant: str) -> None:
    with correlated("c-1"):
        asking = requester_of(Caller("token:3", {}, org_id=org_id))
    assert (asking.tenant_id, asking.actor, asking.correlation_id) == (tenant, "token:3", "c-1")


def test_without_a_correlation_id_one_is_made_up() -> None:
    assert requester_of(Caller("token:3", {})).correlation_id
