"""Documents of sources: what changes by itself makes no new version."""

from automation_pipeline.enrichment.domain.documents import canonical, checksum


def test_what_changes_by_itself_is_left_out_wherever_it_stands() -> None:
    one = {"siren": "1", "score": 3.2, "list": [{"date_mise_a_jour": "x", "city": "Évry"}]}
    other = {"list": [{"city": "Évry", "date_mise_a_jour": "y"}], "siren": "1", "score": 9}
    assert checksum(one) == checksum(other)
    assert canonical(one) == '{"list":[{"city":"Évry"}],"siren":"1"}'


def test_a_company_that_has_moved_is_another_version() -> None:
    assert checksum({"city": "Paris"}) != checksum({"city": "Lyon"})
