"""Filters of audit lists, buckets of scores, and bodies of requests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import AuditStatus, Niveau
from automation_pipeline.audits.models.requests import (
    AuditFilter,
    AuditGrouping,
    GroupBy,
    bucket_name,
    last_bucket,
)
from automation_pipeline.audits.requests import INVALID_REQUEST
from automation_pipeline.audits.routes.requests import (
    AuditBatchInput,
    AuditBody,
    AuditInput,
    LatestAuditInput,
    RerunInput,
    RunAuditInput,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID, parse
from automation_pipeline_tests.cases import every_case

NAMES = st.sampled_from(sorted(AuditFilter.model_fields))


def parse_request(model: type[LatestAuditInput], given: dict[str, object]) -> Any:
    return AuditBody(model, INVALID_REQUEST, {}, required=True).parsed(given)


@given(st.dictionaries(NAMES, st.one_of(st.text(), st.lists(st.text(), max_size=3), st.none())))
def test_any_filter_is_valid_or_names_the_invalid_field(sent: dict[str, Any]) -> None:
    faults: tuple[tuple[str, str], ...] = ()
    try:
        chosen = parse(AuditFilter, sent, "no list")
    except InvalidInputError as error:
        faults = error.fields
    else:
        assert 1 <= chosen.limit <= 500
    assert {field.partition(".")[0] for field, _ in faults} <= set(sent)


@given(
    st.lists(st.sampled_from(AuditStatus), unique=True),
    st.lists(st.sampled_from(Niveau), unique=True),
    st.lists(st.integers(1, LARGEST_ID)),
    st.lists(st.dates()),
)
def test_list_parameters_keep_their_order(
    statuses: Any, niveaux: Any, ids: list[int], days: Any
) -> None:
    sent = {"status": statuses, "niveau": niveaux, "audit_config_ids": ids, "sales_dates": days}
    texts = {name: ",".join(str(one) for one in values) for name, values in sent.items()}
    chosen = parse(AuditFilter, texts, "no list")
    assert chosen == AuditFilter(**{name: tuple(values) for name, values in sent.items()})


def test_an_empty_filter_selects_the_latest_audits_newest_first() -> None:
    chosen = AuditFilter()
    assert (chosen.latest_only, chosen.include_deleted, chosen.limit, chosen.offset) == (
        True,
        False,
        100,
        0,
    )
    assert (chosen.sort_by, chosen.sort_order) == ("created_at", "desc")
    assert (
        parse(AuditFilter, {}, "no list")
        == parse(AuditFilter, {"q": "", "status": [""], "limit": "", "is_compliant": ""}, "no list")
        == AuditFilter()
    )


@pytest.mark.parametrize(
    ("sent", "field", "fault"),
    [
        (
            {"status": "completed,done"},
            "status.1",
            "must be 'pending', 'running', 'completed', 'incomplete' or 'failed'",
        ),
        ({"is_compliant": "maybe"}, "is_compliant", "must be true or false"),
        (
            {"date_from": "yesterday"},
            "date_from",
            "must be a day (YYYY-MM-DD) or an ISO 8601 date-time",
        ),
        ({"sales_dates": "2026-02-03,x"}, "sales_dates.1", "must be a day (YYYY-MM-DD)"),
        ({"sales_date_to": "2026-02-30"}, "sales_date_to", "must be a day (YYYY-MM-DD)"),
        ({"audit_config_ids": "0"}, "audit_config_ids.0", "must be at least 1"),
        (
            {"automation_run_ids": str(2**63)},
            "automation_run_ids.0",
            f"must be at most {LARGEST_ID}",
        ),
        ({"score_min": "101"}, "score_min", "must be at most 100.0"),
        ({"score_max": "nan"}, "score_max", "must be a finite number"),
        ({"tokens_min": "-1"}, "tokens_min", "must be at least 0"),
        ({"duration_max_ms": "1.5"}, "duration_max_ms", "must be a whole number"),
        ({"q": "a\0"}, "q", "must not hold the character NUL"),
        ({"q": "x" * 201}, "q", "must have at most 200 characters"),
        (
            {"sort_by": "niveau"},
            "sort_by",
            "must be 'created_at', 'completed_at', 'score_percentage' or 'duration_ms'",
        ),
        ({"limit": "501"}, "limit", "must be at most 500"),
        ({"limit": "0"}, "limit", "must be at least 1"),
        ({"offset": "-1"}, "offset", "must be at least 0"),
        ({"statut": "x"}, "statut", "is not a known field"),
    ],
)
def test_errors_name_the_invalid_parameter(sent: dict[str, str], field: str, fault: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(AuditFilter, sent, "no list")
    assert refused.value.fields == ((field, fault),)


def test_a_grouping_needs_a_key() -> None:
    assert (
        parse(AuditGrouping, {"group_by": "score_bucket", "bucket_size": "25"}, "no list").group_by
        is GroupBy.SCORE_BUCKET
    )
    assert parse(AuditGrouping, {"group_by": "niveau"}, "no list").bucket_size == 10
    for sent in (
        {},
        {"group_by": "colour"},
        {"group_by": "niveau", "bucket_size": "101"},
        {"group_by": "niveau", "bucket_size": "0"},
    ):
        with pytest.raises(InvalidInputError):
            parse(AuditGrouping, sent, "no list")


@given(st.integers(1, 100))
def test_the_last_bucket_includes_100(size: int) -> None:
    last = last_bucket(size)
    assert last % size == 0
    assert last < 100 <= last + size
    assert bucket_name(last, size) == f"{last}-100"
    assert bucket_name(0, size) == f"0-{size}"


def test_a_request_may_use_legacy_field_names() -> None:
    old = {"fiche_id": "1900417", "audit_id": 11, "useRlm": True}
    new = {"fiche_id": "1900417", "audit_config_id": "11", "use_rlm": True}
    assert parse_request(AuditInput, old) == parse_request(AuditInput, new)


@every_case(
    ("model", "given", "sentence"),
    [
        (AuditInput, {}, "Missing required parameters"),
        (AuditInput, {"fiche_id": "1"}, "Missing required parameters"),
        (RunAuditInput, {"audit_config_id": 1}, "Missing required parameters"),
        (
            RunAuditInput,
            {"fiche_id": "1", "audit_config_id": 1, "automation_run_id": 2},
            "The audit request is not valid",
        ),
        (LatestAuditInput, {}, "Missing required parameter"),
        (LatestAuditInput, {"fiche_id": 1900417}, "The audit request is not valid"),
        (LatestAuditInput, {"fiche_id": "19-x"}, "The audit request is not valid"),
        (
            AuditInput,
            {"fiche_id": "1", "audit_config_id": 1, "use_rlm": "no"},
            "The audit request is not valid",
        ),
    ],
)
def test_errors_name_the_invalid_field(
    model: type[LatestAuditInput], given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{sentence}$") as refused:
        parse_request(model, given)
    assert refused.value.fields


def test_a_batch_names_each_fiche_once() -> None:
    assert parse(AuditBatchInput, {"fiche_ids": ["2", "1", "2"]}, "no").fiche_ids == ("2", "1")
    for fiche_ids in ([], [1], ["x"], "1", None, ["1"] * 10_001):
        with pytest.raises(InvalidInputError):
            parse(AuditBatchInput, {"fiche_ids": fiche_ids}, "no")


def test_the_instructions_field_has_an_alias() -> None:
    assert parse(RerunInput, {"customPrompt": "Listen."}, "no").instructions == "Listen."
    assert parse(RerunInput, {"customInstructions": "Listen."}, "no").instructions == "Listen."
    assert parse(RerunInput, {}, "no").instructions is None


@every_case("given", [11, "11", 11.0])
def test_an_id_is_a_number_or_its_digits(given: object) -> None:
    assert (
        parse_request(RunAuditInput, {"fiche_id": "1", "audit_config_id": given}).audit_config_id
        == 11
    )


@every_case("given", [True, 0, -1, 1.5, "011", "1e3", "", None, 2**63, float("1e300"), [11]])
def test_invalid_ids_are_refused(given: object) -> None:
    with pytest.raises(InvalidInputError):
        parse_request(RunAuditInput, {"fiche_id": "1", "audit_config_id": given})
