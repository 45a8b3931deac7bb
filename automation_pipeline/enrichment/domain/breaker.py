"""When a source is left alone for a while, by all processes, and for how long."""

from datetime import datetime, timedelta

from automation_pipeline.enrichment.domain.record import SourceError, SourceOutcome
from automation_pipeline.enrichment.domain.vocabulary import REQUIRED_SOURCES, ErrorCode, SourceApi

# A source that has not answered so often in a row has banned us, or is down.
SILENT_AFTER = 10
MOST_PUT_OFFS = 10
_DEFAULT = timedelta(seconds=60)
# Whatever it asks for: a date that is years away would switch it off for good.
LONGEST_ASKED = timedelta(hours=24)
# What a source does to those who go on calling it after a 429.
_AFTER_RATE_LIMIT = {SourceApi.INPI: timedelta(minutes=10)}
# Its bans do not answer at all.
_AFTER_SILENCE = {SourceApi.RCS: timedelta(hours=12)}
# Wrong credentials block the account after a few more tries.
_AFTER_REFUSAL = timedelta(hours=1)
_SILENT = frozenset({ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE})


def rest_after(source: SourceApi, error: SourceError, failures: int, *, goes_on: bool = False) -> timedelta | None:
    """`failures`: of its kind in a row, this one included. `goes_on`: it is called again once it has had the short
    rest that it asked for. None: the next call may be made."""
    if error.is_ours:
        return None
    if error.error_code is ErrorCode.RATE_LIMIT:
        asked = timedelta(seconds=min(error.retry_after_seconds or 0.0, LONGEST_ASKED.total_seconds()))
        return asked if goes_on else max(asked, _AFTER_RATE_LIMIT.get(source, _DEFAULT))
    if error.error_code in {ErrorCode.AUTH_ERROR, ErrorCode.FORBIDDEN}:
        return _AFTER_REFUSAL if error.error_code is ErrorCode.AUTH_ERROR else None
    if failures < SILENT_AFTER:
        return None
    return _AFTER_SILENCE.get(source, _DEFAULT) if is_silent(error) else _DEFAULT


def is_down(error: SourceError) -> bool:
    """Whether it counts towards taking the source for down."""
    return is_silent(error) or (error.error_code is ErrorCode.UPSTREAM_5XX and not error.is_ours)


def is_silent(error: SourceError) -> bool:
    """Who answers with a status has not banned us, even where it could not say more."""
    return error.error_code in _SILENT and error.http_status is None and not error.is_ours


def may_be_sent_again(source: SourceApi, error: SourceError, longest_wait_seconds: float) -> bool:
    """Whether another call of the same job can help, soon enough. INPI bans callers that repeat a call after a 429."""
    if not error.retryable or (error.retry_after_seconds or 0.0) > longest_wait_seconds:
        return False
    return error.error_code is not ErrorCode.RATE_LIMIT or source is not SourceApi.INPI


def put_off_until(outcome: SourceOutcome, put_offs: int) -> datetime | None:
    """When a job goes on whose required source asks every caller to wait. None: the outcome counts as it is.

    A rest that the job met before it made a call never counts against it. A job whose own calls were answered with
    429 is put off at most `MOST_PUT_OFFS` times."""
    error = outcome.error
    if outcome.source not in REQUIRED_SOURCES or error is None or error.not_before is None:
        return None
    return error.not_before if put_offs < MOST_PUT_OFFS or not outcome.was_called else None
