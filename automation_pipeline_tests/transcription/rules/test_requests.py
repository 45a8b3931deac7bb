"""Requests for transcripts."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.transcription.models import TranscriptionPriority, is_transcribed
from automation_pipeline.transcription.requests import parse_batch, parse_priority
from automation_pipeline_tests.tables import every_case


@every_case("given", [None, "", "urgent", "HIGH", 3, ["high"], {}])
def test_anything_that_is_no_priority_is_the_normal_one(given: object) -> None:
    assert parse_priority(given) is TranscriptionPriority.NORMAL
    assert (
        parse_batch({"fiche_ids": ["1"], "priority": given}).priority
        is TranscriptionPriority.NORMAL
    )


def test_each_fiche_is_named_once_and_the_priority_kept() -> None:
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
def test_a_run_that_renews_keeps_only_transcripts_made_since(
    has_transcription: bool,
    transcribed_at: datetime | None,
    renew_before: datetime | None,
    expected: bool,
) -> None:
    assert is_transcribed(has_transcription, transcribed_at, renew_before) is expected
