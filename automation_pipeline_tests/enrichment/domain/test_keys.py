"""Keys that make one thing one thing."""

from automation_pipeline.enrichment.domain.keys import lock_key


def test_the_lease_of_a_company_has_the_name_of_the_contract() -> None:
    assert lock_key("552032534") == "company_enrichment:552032534"
