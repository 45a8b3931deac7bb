"""Requests for transcripts, log queries, and the check of a day."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.transcription.models import (
    DayTranscripts,
    TranscriptionPriority,
    is_transcribed,
)
from automation_pipeline.transcription.queries.recordings import LogQuery, parse_log_query
from automation_pipeline.transcription.requests import parse_batch, parse_priority
from automation_pipeline.transcription.rules import COVERAGE_CHECK, judge_transcripts
from automation_pipeline_tests.cases import every_case


@every_case("given", [None, "", "urgent", "HIGH", 3, ["high"], {}])
def test_an_unknown_priority_is_parsed_as_normal(given: object) -> None:
    assert parse_priority(given) is TranscriptionPriority.NORMAL
    assert (
        parse_batch({"fiche_ids": ["1"], "priority": given}).priority
        is TranscriptionPriority.NORMAL
    )


def test_duplicate_fiche_ids_are_removed_and_the_priority_is_kept() -> None:
    request = parse_batch({"fiche_ids": ["2", "1", "2"], "priority": "high"})
    assert (request.fiche_ids, request.priority) == (("2", "1"), TranscriptionPriority.HIGH)


@every_case(
    ("given", "field"),
    [
        ({}, "fiche_ids"),
        ({"fiche_ids": "1"}, "fiche_ids"),
        ({"fiche_ids": []}, "fiche_ids"),
        ({"fiche_ids": ["1", 2]}, "fiche_ids.1"),
        ({"fiche_ids": ["1x"]}, "fiche_ids.0"),
        ({"fiche_ids": ["1"] * 10_001}, "fiche_ids"),
        ({"fiche_ids": ["1"], "wait": True}, "wait"),
    ],
)
def test_errors_name_the_invalid_parameter(given: dict[str, object], field: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^Invalid request - fiche_ids array required$"
    ) as refused:
        parse_batch(given)
    assert field in [name for name, _ in refused.value.fields]


MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)


@every_case(
    ("has_transcription", "transcribed_at", "renew_before", "expected"),
    [
        (False, None, None, False),
        (True, None, None, True),
        (True, MARCH, None, True),
        (True, None, MARCH, False),
        (True, MARCH, APRIL, False),
        (True, MARCH, MARCH, True),
        (True, APRIL, MARCH, True),
        (False, APRIL, MARCH, False),
    ],
)
def test_a_renewing_run_keeps_only_transcripts_made_since_its_start(
    has_transcription: bool,
    transcribed_at: datetime | None,
    renew_before: datetime | None,
    expected: bool,
) -> None:
    assert is_transcribed(has_transcription, transcribed_at, renew_before) is expected


def test_an_empty_log_query_selects_everything() -> None:
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
def test_errors_of_a_log_query_name_the_invalid_parameter(
    given: dict[str, str], sentence: str, field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_log_query(given)
    assert (str(refused.value), [name for name, _ in refused.value.fields]) == (sentence, [field])


@every_case(
    ("recordings", "transcribed", "has_sales_list", "passed", "grave"),
    [
        (100, 95, True, True, False),
        (100, 94, True, False, False),
        (0, 0, True, True, False),
        (0, 0, False, False, True),
        (3, 3, False, False, True),
    ],
)
def test_the_coverage_check_requires_nearly_all_recordings_of_a_fetched_day(
    recordings: int, transcribed: int, has_sales_list: bool, passed: bool, grave: bool
) -> None:
    finding = judge_transcripts(
        DayTranscripts(recordings, transcribed, 1.0, {}), has_sales_list=has_sales_list
    )
    assert (finding.check, finding.passed, finding.grave) == (COVERAGE_CHECK, passed, grave)
