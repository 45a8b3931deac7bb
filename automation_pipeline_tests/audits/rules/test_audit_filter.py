"""Filters as they stand in query strings: whatever is sent is read, or refused with the name of the
parameter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.models.findings import Niveau
from automation_pipeline.audits.models.requests import (
    AuditFilter,
    AuditGrouping,
    GroupBy,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID, parse

NAMES = st.sampled_from(sorted(AuditFilter.model_fields))


@given(st.dictionaries(NAMES, st.one_of(st.text(), st.lists(st.text(), max_size=3), st.none())))
def test_anything_is_read_or_refused_by_name(sent: dict[str, Any]) -> None:
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
def test_lists_come_back_in_their_order(
    statuses: Any, niveaux: Any, ids: list[int], days: Any
) -> None:
    sent = {"status": statuses, "niveau": niveaux, "audit_config_ids": ids, "sales_dates": days}
    texts = {name: ",".join(str(one) for one in values) for name, values in sent.items()}
    chosen = parse(AuditFilter, texts, "no list")
    assert chosen == AuditFilter(**{name: tuple(values) for name, values in sent.items()})


def test_nothing_sent_is_the_latest_audits_newest_first() -> None:
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
def test_what_is_wrong_is_named(sent: dict[str, str], field: str, fault: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(AuditFilter, sent, "no list")
    assert refused.value.fields == ((field, fault),)


def test_a_grouping_says_by_what() -> None:
    assert (
        parse(AuditGrouping, {"group_by": "score_bucket", "bucket_size": "25"}, "no list").group_by
        is GroupBy.SCORE_BUCKET
    )
    for sent in ({}, {"group_by": "colour"}, {"group_by": "niveau", "bucket_size": "101"}):
        with pytest.raises(InvalidInputError):
            parse(AuditGrouping, sent, "no list")
