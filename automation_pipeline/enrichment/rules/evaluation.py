"""Decisions of enrichment: freshness, breakers, merged snapshots, the status of a job, coverage."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, cast

from automation_pipeline.enrichment.models import (
    FIELDS,
    REQUIRED_SOURCES,
    CallStatus,
    CompanyFields,
    EnrichmentStatus,
    ErrorCode,
    Identifiers,
    Snapshot,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)

MAX_ERROR_LENGTH = 2000
UNKNOWN = "-"


def error_item(source: str, http_status: int | None, code: ErrorCode) -> str:
    return f"{source}:{UNKNOWN if http_status is None else http_status}:{code}"


def error_text(items: Iterable[str]) -> str:
    """Cut at the last whole one that fits."""
    text = ""
    for one in items:
        longer = f"{text}|{one}" if text else one
        if len(longer) > MAX_ERROR_LENGTH:
            break
        text = longer
    return text


LOST_WORKER = error_item(UNKNOWN, None, ErrorCode.INTERNAL_ERROR)


_NAMELESS = SourceError(
    error_code=ErrorCode.NOT_FOUND,
    http_status=200,
    message="The register knows the number, but nobody by that number.",
)
_MASKED = SourceError(
    error_code=ErrorCode.FORBIDDEN,
    http_status=200,
    message="The register knows it, and may not tell who it is.",
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


def evaluate_job(
    outcomes: Sequence[SourceOutcome],
    *,
    core_identity_present: bool,
    optional_not_found_counts: bool = True,
) -> Evaluation:
    """In the order of the calls. Only what was called counts. A required source that answers with a
    company without a name has not found it, or may not tell it."""
    told = [_without_identity(one, core_identity_present=core_identity_present) for one in outcomes]
    failures = [one for one in told if one.error is not None]
    counted = [one for one in failures if optional_not_found_counts or not _is_not_applicable(one)]
    required = sum(one.source in REQUIRED_SOURCES for one in counted)
    asked = {one.source for one in told}
    missing = sum(source not in asked for source in REQUIRED_SOURCES)
    optional = len(counted) - required
    status = _status(required + missing, optional, core_identity_present=core_identity_present)
    items = [
        error_item(one.source, one.error.http_status, one.error.error_code)
        for one in counted
        if one.error
    ]
    items += [
        error_item(source, None, ErrorCode.SOURCE_UNAVAILABLE)
        for source in REQUIRED_SOURCES
        if source not in asked
    ]
    return Evaluation(
        status=status,
        success=sum(one.status is CallStatus.SUCCESS for one in told),
        required_failed=required + missing,
        optional_failed=optional,
        core_identity_present=core_identity_present,
        error=error_text(items) or None,
        is_worth_retrying=any(one.error is not None and one.error.retryable for one in counted),
    )


def evaluate_abandoned_job(
    outcomes: Sequence[SourceOutcome],
    *,
    core_identity_present: bool,
    optional_not_found_counts: bool = True,
) -> Evaluation:
    """A job that nobody could end: what was heard counts, but nothing was made of it."""
    heard = evaluate_job(
        outcomes,
        core_identity_present=core_identity_present,
        optional_not_found_counts=optional_not_found_counts,
    )
    unasked = {
        error_item(source, None, ErrorCode.SOURCE_UNAVAILABLE) for source in REQUIRED_SOURCES
    }
    unasked -= {
        error_item(one.source, one.error.http_status, one.error.error_code)
        for one in outcomes
        if one.error
    }
    items = [one for one in (heard.error or "").split("|") if one and one not in unasked]
    return replace(
        heard,
        status=EnrichmentStatus.FAILED,
        core_identity_present=False,
        error=error_text([*items, LOST_WORKER]),
        is_worth_retrying=True,
    )


def _status(
    required_failed: int, optional_failed: int, *, core_identity_present: bool
) -> EnrichmentStatus:
    if required_failed or not core_identity_present:
        return EnrichmentStatus.FAILED
    return EnrichmentStatus.PARTIAL if optional_failed else EnrichmentStatus.SUCCESS


def _without_identity(one: SourceOutcome, *, core_identity_present: bool) -> SourceOutcome:
    if one.source in REQUIRED_SOURCES and one.record is not None and not core_identity_present:
        return replace(one, record=None, error=_MASKED if one.record.is_masked else _NAMELESS)
    return one


def _is_not_applicable(one: SourceOutcome) -> bool:
    is_unknown = one.error is not None and one.error.error_code is ErrorCode.NOT_FOUND
    return is_unknown and one.source not in REQUIRED_SOURCES


RETRY_AFTER = (timedelta(hours=6), timedelta(hours=24), timedelta(hours=72))
_FRESHNESS_SPREAD = 0.1


def is_fresh(updated_at: datetime | None, now: datetime, freshness: timedelta) -> bool:
    """Exactly as old as that is stale."""
    return updated_at is not None and now - updated_at < freshness


def spread_freshness(siren: str, freshness: timedelta) -> timedelta:
    """When a snapshot is refreshed by itself: up to a tenth after its freshness ends, always the
    same for a SIREN, so that companies that were fetched in one night are not refreshed in one
    night. Never before: a snapshot is STALE only when its time is over."""
    share = (int(siren) % 1000) / 999
    return freshness * (1 + _FRESHNESS_SPREAD * share)


def due_at(
    siren: str, evaluation: Evaluation, retries: int, now: datetime, freshness: timedelta
) -> datetime:
    """`retries`: how often it was tried again before, for reasons that pass by themselves."""
    if is_tried_again_soon(evaluation, retries):
        return now + RETRY_AFTER[retries]
    return now + spread_freshness(siren, freshness)


def is_tried_again_soon(evaluation: Evaluation, retries: int) -> bool:
    is_whole = evaluation.status is EnrichmentStatus.SUCCESS
    return not is_whole and evaluation.is_worth_retrying and retries < len(RETRY_AFTER)


def cooldown_until(
    status: EnrichmentStatus, last_manual_at: datetime | None, now: datetime, cooldown: timedelta
) -> datetime | None:
    """Until when nobody may have it refreshed by hand; None: anybody may. One that failed may be
    tried at any time."""
    if (
        last_manual_at is None
        or status is EnrichmentStatus.FAILED
        or now >= last_manual_at + cooldown
    ):
        return None
    return last_manual_at + cooldown


# A source that has not answered so often in a row has banned us, or is down.
MAX_FAILURES = 10
MAX_POSTPONEMENTS = 10
_DEFAULT_REST = timedelta(seconds=60)
# Whatever it asks for: a date that is years away would switch it off for good.
MAX_REST = timedelta(hours=24)
# What a source does to those who go on calling it after a 429.
_AFTER_RATE_LIMIT = {SourceApi.INPI: timedelta(minutes=10)}
# Its bans do not answer at all.
_AFTER_SILENCE = {SourceApi.RCS: timedelta(hours=12)}
# Wrong credentials block the account after a few more tries.
_AFTER_REFUSAL = timedelta(hours=1)
_SILENT_CODES = frozenset({ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE})


def rest_after(
    source: SourceApi, error: SourceError, failures: int, *, goes_on: bool = False
) -> timedelta | None:
    """`failures`: of its kind in a row, this one included. `goes_on`: it is called again once it
    has had the short rest that it asked for. None: the next call may be made."""
    if error.is_ours:
        return None
    if error.error_code is ErrorCode.RATE_LIMIT:
        asked = timedelta(seconds=min(error.retry_after_seconds or 0.0, MAX_REST.total_seconds()))
        return asked if goes_on else max(asked, _AFTER_RATE_LIMIT.get(source, _DEFAULT_REST))
    if error.error_code in {ErrorCode.AUTH_ERROR, ErrorCode.FORBIDDEN}:
        return _AFTER_REFUSAL if error.error_code is ErrorCode.AUTH_ERROR else None
    if failures < MAX_FAILURES:
        return None
    return _AFTER_SILENCE.get(source, _DEFAULT_REST) if is_silent(error) else _DEFAULT_REST


def is_down(error: SourceError) -> bool:
    """Whether it counts towards taking the source for down."""
    return is_silent(error) or (error.error_code is ErrorCode.UPSTREAM_5XX and not error.is_ours)


def is_silent(error: SourceError) -> bool:
    """Who answers with a status has not banned us, even where it could not say more."""
    return error.error_code in _SILENT_CODES and error.http_status is None and not error.is_ours


def may_be_sent_again(source: SourceApi, error: SourceError, longest_wait_seconds: float) -> bool:
    """Whether another call of the same job can help, soon enough. INPI bans callers that repeat a
    call after a 429."""
    if not error.retryable or (error.retry_after_seconds or 0.0) > longest_wait_seconds:
        return False
    return error.error_code is not ErrorCode.RATE_LIMIT or source is not SourceApi.INPI


def postponed_until(outcome: SourceOutcome, put_offs: int) -> datetime | None:
    """When a job goes on whose required source asks every caller to wait. None: the outcome counts
    as it is.

    A rest that the job met before it made a call never counts against it. A job whose own calls
    were answered with 429 is put off at most `MOST_PUT_OFFS` times."""
    error = outcome.error
    if outcome.source not in REQUIRED_SOURCES or error is None or error.not_before is None:
        return None
    return error.not_before if put_offs < MAX_POSTPONEMENTS or not outcome.was_called else None


# They change from call to call, though nothing of the company has.
VOLATILE = frozenset({"score", "date_mise_a_jour", "meta", "links"})


def canonical_document(document: Mapping[str, object]) -> str:
    return json.dumps(
        _without_volatile(document), ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )


def document_checksum(document: Mapping[str, object]) -> str:
    return hashlib.sha256(canonical_document(document).encode("utf-8", "surrogatepass")).hexdigest()


def _without_volatile(value: object) -> object:
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {key: _without_volatile(inner) for key, inner in entries if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [_without_volatile(inner) for inner in cast("list[object]", value)]
    return value


_SEARCH, _INPI, _RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS
_AS_CALLED = tuple(SourceApi)

PRIORITY: Mapping[str, tuple[SourceApi, ...]] = MappingProxyType(
    dict.fromkeys(FIELDS, _AS_CALLED)
    | dict.fromkeys(("legal_form", "creation_date"), (_INPI, _SEARCH, _RCS))
    | {"country_code": (_INPI, _SEARCH)}
    | dict.fromkeys(("siret", "naf_label", "headcount_range"), (_SEARCH,))
    | dict.fromkeys(("rcs_city", "registry_name"), (_RCS, _INPI))
)


def merge_records(
    before: Snapshot | None,
    records: Mapping[SourceApi, SourceRecord],
    identifiers: Identifiers,
    locked: Collection[str] = (),
    failed: Collection[SourceApi] = (),
) -> Snapshot:
    """What nobody says now is kept as it was, and so is what a user has locked, or a source has
    said that comes first and could not be asked now."""
    said: dict[str, Any] = {}  # Any: a field is a text or a day
    sources = dict(before.sources) if before else {}
    for name in FIELDS:
        first = None if name in locked else _first(name, records)
        if first is not None and not _is_better(name, before, first[0], failed):
            sources[name], said[name] = first
    values = replace(before.values if before else CompanyFields(), **said)
    is_masked = (
        any(record.is_masked for record in records.values())
        if records
        else bool(before and before.is_masked)
    )
    return Snapshot(identifiers.siren, values, sources, is_masked)


def _first(name: str, records: Mapping[SourceApi, SourceRecord]) -> tuple[SourceApi, object] | None:
    """The source that comes first among those which say something."""
    told = ((one, getattr(records[one].said, name)) for one in PRIORITY[name] if one in records)
    return next(((source, value) for source, value in told if value is not None), None)


def _is_better(
    name: str, before: Snapshot | None, source: SourceApi, failed: Collection[SourceApi]
) -> bool:
    """What is known, than what this source says."""
    its = before.sources.get(name) if before else None
    if before is None or its not in failed or getattr(before.values, name) is None:
        return False
    order = PRIORITY[name]
    return its in order and order.index(its) < order.index(source)


def changed_fields(before: Snapshot | None, after: Snapshot) -> dict[str, dict[str, str | None]]:
    """By field what it was and what it is."""
    old = before.values if before else CompanyFields()
    return {
        name: {"before": _shown(getattr(old, name)), "after": _shown(getattr(after.values, name))}
        for name in FIELDS
        if getattr(old, name) != getattr(after.values, name)
    }


def has_core_identity(snapshot: Snapshot) -> bool:
    values = snapshot.values
    return bool(values.legal_name and (values.address_line1 or values.postal_code or values.city))


def value_hash(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()


def _shown(value: object) -> str | None:
    return None if value is None else str(value)


MAX_FAILED_SHARE = 0.1
MIN_COMPANIES = 20
# Within that time the sweep has found what is too old.
GRACE = timedelta(hours=1)
AGES: Mapping[str, timedelta] = {
    "up to a day": timedelta(days=1),
    "up to a week": timedelta(days=7),
    "up to 30 days": timedelta(days=30),
}
OLDER = "older"
COVERAGE, FRESHNESS = "coverage", "freshness"


@dataclass(frozen=True)
class CoverageFinding:
    """`grave`: an invariant does not hold."""

    check: str
    passed: bool
    says: str
    grave: bool = False


@dataclass(frozen=True, kw_only=True)
class CompanyCoverage:
    """`ages` of the snapshots. `unexplained`: failed without a word; `overdue`: SUCCESS, and older
    than that lasts."""

    statuses: Mapping[EnrichmentStatus, int] = field(default_factory=dict[EnrichmentStatus, int])
    ages: Mapping[str, int] = field(default_factory=dict[str, int])
    masked: int = 0
    unexplained: int = 0
    overdue: int = 0

    @property
    def enriched(self) -> int:
        return sum(self.statuses.values())

    @property
    def companies(self) -> int:
        return sum(self.ages.values())

    @property
    def failed(self) -> int:
        return self.statuses.get(EnrichmentStatus.FAILED, 0)


def evaluate_coverage(coverage: CompanyCoverage) -> Iterator[CoverageFinding]:
    share = coverage.failed / coverage.enriched if coverage.enriched else 0.0
    is_much = share > MAX_FAILED_SHARE and coverage.enriched >= MIN_COMPANIES
    told = f"{coverage.failed} of {coverage.enriched} enrichments have failed ({share:.0%})"
    if coverage.unexplained:
        told = f"{coverage.unexplained} have failed without an error; {told}"
    passed = not is_much and not coverage.unexplained
    yield CoverageFinding(COVERAGE, passed, f"{told}.", grave=bool(coverage.unexplained))
    old = f"{coverage.overdue} companies are SUCCESS and older than that lasts: does the sensor sweep_enrichments run?"
    yield CoverageFinding(
        FRESHNESS,
        not coverage.overdue,
        old if coverage.overdue else "Nothing is SUCCESS for too long.",
    )
