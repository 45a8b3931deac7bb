"""Keys that make one thing one thing."""

from automation_pipeline.enrichment.models import claim_key


def test_the_lease_of_a_company_has_the_name_of_the_contract() -> None:
    assert claim_key("552032534") == "company_enrichment:552032534"
