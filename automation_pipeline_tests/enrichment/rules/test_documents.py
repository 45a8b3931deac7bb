"""Documents of sources: what changes by itself makes no new version."""

from automation_pipeline.enrichment.rules.evaluation import canonical_document, document_checksum


def test_what_changes_by_itself_is_left_out_wherever_it_stands() -> None:
    one = {"siren": "1", "score": 3.2, "list": [{"date_mise_a_jour": "x", "city": "Évry"}]}
    other = {"list": [{"city": "Évry", "date_mise_a_jour": "y"}], "siren": "1", "score": 9}
    assert document_checksum(one) == document_checksum(other)
    assert canonical_document(one) == '{"list":[{"city":"Évry"}],"siren":"1"}'


def test_a_company_that_has_moved_is_another_version() -> None:
    assert document_checksum({"city": "Paris"}) != document_checksum({"city": "Lyon"})
