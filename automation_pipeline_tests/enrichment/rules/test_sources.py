"""Rests and retries of sources, and which sources are required."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.enrichment.models import (
    ErrorCode,
    SourceApi,
    SourceError,
    SourceOutcome,
    check_configured,
    is_configured,
)
from automation_pipeline.enrichment.rules.evaluation import (
    MAX_FAILURES,
    is_call_repeatable,
    is_down,
    is_silent,
    postponed_until,
    rest_after,
)
from automation_pipeline_tests.cases import every_case

SEARCH, INPI, RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS
TEMPORARY = {ErrorCode.TIMEOUT, ErrorCode.UPSTREAM_5XX, ErrorCode.SOURCE_UNAVAILABLE}
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def error(code: str, after: float | None = None) -> SourceError:
    is_retryable = code in {*TEMPORARY, "RATE_LIMIT"}
    return SourceError(
        error_code=ErrorCode(code),
        message="No.",
        retryable=is_retryable,
        retry_after_seconds=after,
    )


@every_case(
    ("source", "after", "will_retry", "length"),
    [
        (SEARCH, None, False, MINUTE),
        (SEARCH, 20.0, False, MINUTE),
        (SEARCH, 90.0, False, 90 * SECOND),
        (RCS, 2.0, True, 2 * SECOND),
        (INPI, 2.0, False, 10 * MINUTE),
        (INPI, 3600.0, False, HOUR),
        (SEARCH, 86_400.0, False, 24 * HOUR),
        (SEARCH, 86_401.0, False, 24 * HOUR),
        (INPI, 2.5e11, False, 24 * HOUR),  # the last day of the year 9999
        (RCS, 1e300, True, 24 * HOUR),
        (RCS, float("inf"), False, 24 * HOUR),
    ],
)
def test_a_rate_limited_source_rests_for_retry_after_or_its_minimum(
    source: SourceApi, after: float | None, will_retry: bool, length: timedelta
) -> None:
    assert rest_after(source, error("RATE_LIMIT", after), 0, will_retry=will_retry) == length


@every_case(
    ("source", "code", "length"),
    [
        (SEARCH, "TIMEOUT", MINUTE),
        (SEARCH, "UPSTREAM_5XX", MINUTE),
        (INPI, "SOURCE_UNAVAILABLE", MINUTE),
        (RCS, "TIMEOUT", 12 * HOUR),
        (RCS, "UPSTREAM_5XX", MINUTE),
    ],
)
def test_a_source_that_is_down_rests_after_ten_consecutive_failures(
    source: SourceApi, code: str, length: timedelta
) -> None:
    assert rest_after(source, error(code), MAX_FAILURES - 1) is None
    assert rest_after(source, error(code), MAX_FAILURES) == length


@every_case(("code", "length"), [("AUTH_ERROR", HOUR), ("FORBIDDEN", None), ("NOT_FOUND", None)])
def test_a_source_that_rejects_the_credentials_rests_for_an_hour(
    code: str, length: timedelta | None
) -> None:
    assert rest_after(INPI, error(code), 0) == length


@every_case("code", list(ErrorCode))
def test_only_temporary_errors_mean_that_a_source_is_down(code: ErrorCode) -> None:
    assert is_down(error(code)) is (code in TEMPORARY)


@every_case("code", list(ErrorCode))
def test_a_local_refusal_does_not_count_against_the_source(code: ErrorCode) -> None:
    local = replace(error(code, 90.0), is_local=True)
    assert not is_down(local)
    assert rest_after(INPI, local, MAX_FAILURES) is None


@every_case(
    ("source", "code", "after", "repeatable"),
    [
        (INPI, "TIMEOUT", None, True),
        (INPI, "UPSTREAM_5XX", 5.0, True),
        (INPI, "UPSTREAM_5XX", 5.1, False),
        (SEARCH, "RATE_LIMIT", 5.0, True),
        (SEARCH, "RATE_LIMIT", 5.1, False),
        (SEARCH, "RATE_LIMIT", None, True),
        (INPI, "RATE_LIMIT", 1.0, False),
        (RCS, "NOT_FOUND", None, False),
        (RCS, "AUTH_ERROR", None, False),
    ],
)
def test_only_errors_with_a_short_wait_are_retried_and_never_inpi_rate_limits(
    source: SourceApi, code: str, after: float | None, repeatable: bool
) -> None:
    assert is_call_repeatable(source, error(code, after), 5.0) is repeatable


LATER = datetime(2026, 5, 4, 10, 1, tzinfo=UTC)


@every_case(
    ("source", "code", "not_before", "attempts", "postponements", "until"),
    [
        (SEARCH, "RATE_LIMIT", LATER, 1, 9, LATER),
        (SEARCH, "RATE_LIMIT", LATER, 1, 10, None),
        (SEARCH, "RATE_LIMIT", LATER, 0, 10, LATER),
        (SEARCH, "TIMEOUT", None, 3, 0, None),
        (INPI, "RATE_LIMIT", LATER, 1, 0, None),
        (SEARCH, None, None, 1, 0, None),
    ],
)
def test_only_a_required_source_that_asks_to_wait_postpones_the_job(
    source: SourceApi,
    code: str | None,
    not_before: datetime | None,
    attempts: int,
    postponements: int,
    until: datetime | None,
) -> None:
    failure = None if code is None else replace(error(code), not_before=not_before)
    outcome = SourceOutcome(source=source, duration_ms=1, attempts=attempts, error=failure)
    assert postponed_until(outcome, postponements) == until


@every_case(
    ("code", "status", "silent", "down"),
    [
        ("TIMEOUT", None, True, True),
        ("SOURCE_UNAVAILABLE", None, True, True),
        ("SOURCE_UNAVAILABLE", 408, False, False),
        ("SOURCE_UNAVAILABLE", 409, False, False),
        ("UPSTREAM_5XX", 503, False, True),
    ],
)
def test_a_source_that_answers_with_a_status_is_not_silent(
    code: str, status: int | None, silent: bool, down: bool
) -> None:
    answer = replace(error(code), http_status=status)
    assert (is_silent(answer), is_down(answer)) == (silent, down)


@every_case(
    ("sources", "expected"), [((), False), (tuple(SourceApi), True), ((SourceApi.INPI,), False)]
)
def test_the_required_register_must_be_configured(
    sources: tuple[SourceApi, ...], expected: bool
) -> None:
    assert is_configured(sources) is expected
    if not expected:
        with pytest.raises(PermanentError, match="RECHERCHE_ENTREPRISES_BASE_URL is not set"):
            check_configured(sources)
