"""Queries of the transcription log: what is wrong is named."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.transcription.queries.recordings import LogQuery, parse_log_query
from automation_pipeline_tests.tables import every_case


def test_nothing_sent_is_everything() -> None:
    assert parse_log_query({"run_id": "", "level": ""}) == LogQuery()
    assert parse_log_query({"trace_id": "b"}).trace == "b"
    assert parse_log_query({"run_id": "a", "trace_id": "b"}).trace == "a"


@every_case(
    ("given", "sentence", "field"),
    [
        ({"since": "yesterday"}, "Invalid since (expected ISO 8601 date-time)", "since"),
        ({"until": "x", "limit": "1"}, "Invalid until (expected ISO 8601 date-time)", "until"),
        ({"limit": "1001"}, "The logs cannot be shown", "limit"),
        ({"limit": "0"}, "The logs cannot be shown", "limit"),
        ({"offset": "-1"}, "The logs cannot be shown", "offset"),
        ({"level": "loud"}, "The logs cannot be shown", "level"),
        ({"run_id": "a\0"}, "The logs cannot be shown", "run_id"),
        ({"colour": "x"}, "The logs cannot be shown", "colour"),
    ],
)
def test_errors_name_the_invalid_parameter(
    given: dict[str, str], sentence: str, field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_log_query(given)
    assert (str(refused.value), [name for name, _ in refused.value.fields]) == (sentence, [field])
