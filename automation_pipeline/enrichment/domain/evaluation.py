"""What a job came to: its status by the contract's table, the counts, and the error text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automation_pipeline.enrichment.domain.error_text import LOST_WORKER, error_text, item
from automation_pipeline.enrichment.domain.record import SourceError, SourceOutcome
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import REQUIRED_SOURCES, CallStatus, ErrorCode

_NAMELESS = SourceError(
    error_code=ErrorCode.NOT_FOUND, http_status=200, message="The register knows the number, but nobody by that number."
)
_MASKED = SourceError(
    error_code=ErrorCode.FORBIDDEN, http_status=200, message="The register knows it, and may not tell who it is."
)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """`is_worth_retrying`: something failed that may pass by itself."""

    status: EnrichmentStatus
    success: int
    required_failed: int
    optional_failed: int
    core_identity_present: bool
    error: str | None
    is_worth_retrying: bool

    @property
    def failed(self) -> int:
        return self.required_failed + self.optional_failed


def evaluate(
    outcomes: Sequence[SourceOutcome], *, core_identity_present: bool, optional_not_found_counts: bool = True
) -> Evaluation:
    """In the order of the calls. Only what was called counts. A required source that answers with a company without a
    name has not found it, or may not tell it."""
    told = [_found_out(one, core_identity_present=core_identity_present) for one in outcomes]
    failures = [one for one in told if one.error is not None]
    counted = [one for one in failures if optional_not_found_counts or not _is_not_applicable(one)]
    required = sum(one.source in REQUIRED_SOURCES for one in counted)
    asked = {one.source for one in told}
    missing = sum(source not in asked for source in REQUIRED_SOURCES)
    optional = len(counted) - required
    status = _status(required + missing, optional, core_identity_present=core_identity_present)
    items = [item(one.source, one.error.http_status, one.error.error_code) for one in counted if one.error]
    items += [item(source, None, ErrorCode.SOURCE_UNAVAILABLE) for source in REQUIRED_SOURCES if source not in asked]
    return Evaluation(
        status=status,
        success=sum(one.status is CallStatus.SUCCESS for one in told),
        required_failed=required + missing,
        optional_failed=optional,
        core_identity_present=core_identity_present,
        error=error_text(items) or None,
        is_worth_retrying=any(one.error is not None and one.error.retryable for one in counted),
    )


def given_up(
    outcomes: Sequence[SourceOutcome], *, core_identity_present: bool, optional_not_found_counts: bool = True
) -> Evaluation:
    """A job that nobody could end: what was heard counts, but nothing was made of it."""
    heard = evaluate(
        outcomes, core_identity_present=core_identity_present, optional_not_found_counts=optional_not_found_counts
    )
    unasked = {item(source, None, ErrorCode.SOURCE_UNAVAILABLE) for source in REQUIRED_SOURCES}
    unasked -= {item(one.source, one.error.http_status, one.error.error_code) for one in outcomes if one.error}
    items = [one for one in (heard.error or "").split("|") if one and one not in unasked]
    return replace(
        heard,
        status=EnrichmentStatus.FAILED,
        core_identity_present=False,
        error=error_text([*items, LOST_WORKER]),
        is_worth_retrying=True,
    )


def _status(required_failed: int, optional_failed: int, *, core_identity_present: bool) -> EnrichmentStatus:
    if required_failed or not core_identity_present:
        return EnrichmentStatus.FAILED
    return EnrichmentStatus.PARTIAL if optional_failed else EnrichmentStatus.SUCCESS


def _found_out(one: SourceOutcome, *, core_identity_present: bool) -> SourceOutcome:
    if one.source in REQUIRED_SOURCES and one.record is not None and not core_identity_present:
        return replace(one, record=None, error=_MASKED if one.record.is_masked else _NAMELESS)
    return one


def _is_not_applicable(one: SourceOutcome) -> bool:
    is_unknown = one.error is not None and one.error.error_code is ErrorCode.NOT_FOUND
    return is_unknown and one.source not in REQUIRED_SOURCES
