"""Snapshots merged from the records of the sources, and the checksums of documents."""

from datetime import date
from hashlib import sha256
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.enrichment.models import (
    FIELDS,
    CompanyFields,
    Identifiers,
    Snapshot,
    SourceApi,
    SourceRecord,
)
from automation_pipeline.enrichment.rules.evaluation import (
    PRIORITY,
    changed_fields,
    document_checksum,
    has_core_identity,
    merge_records,
)

COMPANY = Identifiers("552032534")
SEARCH, INPI, RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS


def record(**fields: Any) -> SourceRecord:
    return SourceRecord(
        siren=COMPANY.siren, fields=CompanyFields(**fields), document={}, is_masked=False
    )


def test_each_field_has_its_own_source_priority() -> None:
    records = {
        SEARCH: record(
            legal_name="DANONE",
            legal_form="5599",
            creation_date=date(1955, 1, 1),
            naf_label="Holding",
        ),
        INPI: record(
            legal_name="Danone SA", legal_form="5510", country_code="FR", rcs_city="Paris"
        ),
        RCS: record(
            legal_name="DANONE (RCS)",
            legal_form="SAh",
            rcs_city="PARIS",
            registry_name="Greffe de Paris",
        ),
    }
    snapshot = merge_records(None, records, COMPANY)
    assert snapshot.values == CompanyFields(
        legal_name="DANONE",
        legal_form="5510",
        creation_date=date(1955, 1, 1),
        naf_label="Holding",
        country_code="FR",
        rcs_city="PARIS",
        registry_name="Greffe de Paris",
    )
    assert snapshot.sources == {
        "legal_name": SEARCH, "legal_form": INPI, "creation_date": SEARCH, "naf_label": SEARCH,
        "country_code": INPI, "rcs_city": RCS, "registry_name": RCS,
    }  # fmt: skip


def test_every_field_has_a_source_priority() -> None:
    assert set(PRIORITY) == set(FIELDS)


def test_a_locked_field_is_not_overwritten_by_a_merge() -> None:
    before = Snapshot(COMPANY.siren, CompanyFields(legal_name="Edited name", city="PARIS"))
    after = merge_records(
        before, {SEARCH: record(legal_name="DANONE", city="LYON")}, COMPANY, locked={"legal_name"}
    )
    assert (after.values.legal_name, after.values.city) == ("Edited name", "LYON")
    assert changed_fields(before, after) == {"city": {"before": "PARIS", "after": "LYON"}}


_TEXTS = st.none() | st.sampled_from(["a", "b", "c"])
_FIELDS = st.fixed_dictionaries({field: _TEXTS for field in FIELDS if field != "creation_date"})
_RECORDS = st.dictionaries(st.sampled_from(SourceApi), _FIELDS.map(lambda fields: record(**fields)))


@given(
    before=_FIELDS.map(lambda fields: Snapshot(COMPANY.siren, CompanyFields(**fields))),
    records=_RECORDS,
)
def test_an_empty_value_never_overwrites_and_new_values_name_their_source(
    before: Snapshot, records: dict[SourceApi, SourceRecord]
) -> None:
    after = merge_records(before, records, COMPANY)
    for field in FIELDS:
        values = {source: getattr(one.fields, field) for source, one in records.items()}
        value = getattr(after.values, field)
        if field in after.sources:
            assert values[after.sources[field]] == value
        else:
            assert value == getattr(before.values, field)
        assert value is not None or getattr(before.values, field) is None


@given(_FIELDS)
def test_core_identity_requires_a_name_and_an_address(fields: dict[str, str | None]) -> None:
    address = fields["address_line1"] or fields["postal_code"] or fields["city"]
    assert has_core_identity(Snapshot(COMPANY.siren, CompanyFields(**fields))) == bool(
        fields["legal_name"] and address
    )


KNOWN = Snapshot(
    COMPANY.siren,
    CompanyFields(legal_form="5510", country_code="FR", city="PARIS", rcs_city="PARIS"),
    {"legal_form": INPI, "country_code": INPI, "city": RCS, "rcs_city": SEARCH},
)


def test_the_value_of_a_failed_higher_priority_source_is_kept() -> None:
    records = {SEARCH: record(legal_form="5599", city="LYON")}
    kept = merge_records(KNOWN, records, COMPANY, failed={INPI})
    assert (kept.values.legal_form, kept.sources["legal_form"]) == ("5510", INPI)
    assert (kept.values.city, kept.sources["city"]) == ("LYON", SEARCH)
    replaced = merge_records(KNOWN, records | {INPI: record(country_code="FR")}, COMPANY)
    assert (replaced.values.legal_form, replaced.sources["legal_form"]) == ("5599", SEARCH)


def test_the_value_of_a_failed_lower_priority_source_is_replaced() -> None:
    after = merge_records(
        KNOWN, {INPI: record(city="LYON", rcs_city="LYON")}, COMPANY, failed={RCS, SEARCH}
    )
    assert (after.values.city, after.values.rcs_city) == ("LYON", "LYON")


def test_an_empty_value_of_a_failed_source_is_replaced() -> None:
    before = Snapshot(COMPANY.siren, CompanyFields(), {"legal_form": INPI})
    after = merge_records(before, {SEARCH: record(legal_form="5599")}, COMPANY, failed={INPI})
    assert (after.values.legal_form, after.sources["legal_form"]) == ("5599", SEARCH)


def test_volatile_fields_do_not_affect_the_document_checksum() -> None:
    one = {"siren": "1", "score": 3.2, "list": [{"date_mise_a_jour": "x", "city": "Évry"}]}
    other = {"list": [{"city": "Évry", "date_mise_a_jour": "y"}], "siren": "1", "score": 9}
    assert document_checksum(one) == document_checksum(other)
    stable = '{"list":[{"city":"Évry"}],"siren":"1"}'
    assert document_checksum(one) == sha256(stable.encode()).hexdigest()


def test_a_changed_address_changes_the_document_checksum() -> None:
    assert document_checksum({"city": "Paris"}) != document_checksum({"city": "Lyon"})
