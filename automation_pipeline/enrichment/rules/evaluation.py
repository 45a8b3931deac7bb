"""Rules of enrichment: the status of a job, freshness, rests of sources, merged snapshots, coverage checks."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, cast

from automation_pipeline.enrichment.models import (
    FIELDS,
    REQUIRED_SOURCES,
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
from automation_pipeline.fiches.models.days import DayFinding

MAX_ERROR_LENGTH = 2000


def error_item(source: str, http_status: int | None, code: ErrorCode) -> str:
    return f"{source}:{'-' if http_status is None else http_status}:{code}"


def error_text(items: Iterable[str]) -> str:
    """Join the items, as long as they fit into the column."""
    text = ""
    for one in items:
        longer = f"{text}|{one}" if text else one
        if len(longer) > MAX_ERROR_LENGTH:
            break
        text = longer
    return text


LOST_WORKER = error_item("-", None, ErrorCode.INTERNAL_ERROR)
_NAMELESS = SourceError(
    error_code=ErrorCode.NOT_FOUND,
    http_status=200,
    message="The register knows the number, but has no name for it.",
)
_MASKED = SourceError(
    error_code=ErrorCode.FORBIDDEN,
    http_status=200,
    message="The register knows the company, but hides its name.",
)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of a job. The counts are numbers of sources. `is_worth_retrying`: a failure is transient."""

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
    is_abandoned: bool = False,
) -> Evaluation:
    """Evaluate the outcomes, which are in the order of the calls. Sources that were not called do not
    count. A required source that answers without the company's name did not find the company, or hides it.

    An abandoned job has lost its workers too often. Its calls count, but it fails, and its error does
    not name required sources that were not called.
    """
    failures: list[tuple[SourceApi, SourceError]] = []
    for one in outcomes:
        error = one.error
        if one.record and one.source in REQUIRED_SOURCES and not core_identity_present:
            error = _MASKED if one.record.is_masked else _NAMELESS
        is_not_applicable = one.is_unknown and one.source not in REQUIRED_SOURCES
        if error and (optional_not_found_counts or not is_not_applicable):
            failures.append((one.source, error))
    called = {one.source for one in outcomes}
    missing = [source for source in REQUIRED_SOURCES if source not in called]
    required = sum(source in REQUIRED_SOURCES for source, _ in failures) + len(missing)
    optional = len(failures) + len(missing) - required
    items = [error_item(source, error.http_status, error.error_code) for source, error in failures]
    if is_abandoned:
        items.append(LOST_WORKER)
    else:
        items += [error_item(source, None, ErrorCode.SOURCE_UNAVAILABLE) for source in missing]
    if required or is_abandoned or not core_identity_present:
        status = EnrichmentStatus.FAILED
    else:
        status = EnrichmentStatus.PARTIAL if optional else EnrichmentStatus.SUCCESS
    return Evaluation(
        status=status,
        success=sum(
            one.record is not None and (core_identity_present or one.source not in REQUIRED_SOURCES)
            for one in outcomes
        ),
        required_failed=required,
        optional_failed=optional,
        core_identity_present=core_identity_present and not is_abandoned,
        error=error_text(items) or None,
        is_worth_retrying=is_abandoned or any(error.retryable for _, error in failures),
    )


RETRY_AFTER = (timedelta(hours=6), timedelta(hours=24), timedelta(hours=72))
_FRESHNESS_SPREAD = 0.1


def is_fresh(updated_at: datetime | None, now: datetime, freshness: timedelta) -> bool:
    return updated_at is not None and now - updated_at < freshness


def spread_freshness(siren: str, freshness: timedelta) -> timedelta:
    """How long the sweep waits before it refreshes a snapshot: the freshness, and up to a tenth more. The
    delay depends on the SIREN, so that companies fetched in one night are refreshed over several nights."""
    return freshness * (1 + _FRESHNESS_SPREAD * (int(siren) % 1000) / 999)


def due_at(
    siren: str, evaluation: Evaluation, retries: int, now: datetime, freshness: timedelta
) -> datetime:
    """Return when the sweep refreshes the company. `retries` counts the earlier retries after transient
    failures."""
    if is_retried_soon(evaluation, retries):
        return now + RETRY_AFTER[retries]
    return now + spread_freshness(siren, freshness)


def is_retried_soon(evaluation: Evaluation, retries: int) -> bool:
    may_improve = evaluation.status is not EnrichmentStatus.SUCCESS and evaluation.is_worth_retrying
    return may_improve and retries < len(RETRY_AFTER)


def cooldown_until(
    status: EnrichmentStatus, last_manual_at: datetime | None, now: datetime, cooldown: timedelta
) -> datetime | None:
    """Return until when users cannot refresh the company, or None if they can. A company that failed has
    no cooldown."""
    if last_manual_at is None or status is EnrichmentStatus.FAILED:
        return None
    until = last_manual_at + cooldown
    return until if now < until else None


# After this many consecutive failures the source is down, or has banned this system.
MAX_FAILURES = 10
MAX_POSTPONEMENTS = 10
_DEFAULT_REST = timedelta(seconds=60)
# The longest rest that a source can request. Without a limit, a Retry-After of some years would disable it.
MAX_REST = timedelta(hours=24)
# INPI bans callers that continue after a 429.
_AFTER_RATE_LIMIT = {SourceApi.INPI: timedelta(minutes=10)}
# API Entreprise does not answer a banned caller.
_AFTER_SILENCE = {SourceApi.RCS: timedelta(hours=12)}
# A few more attempts with wrong credentials would block the account.
_AFTER_REFUSAL = timedelta(hours=1)
_SILENT_CODES = frozenset({ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE})


def rest_after(
    source: SourceApi, error: SourceError, failures: int, *, will_retry: bool = False
) -> timedelta | None:
    """Return how long no process calls the source, or None if it does not rest. `failures` counts the
    consecutive failures of this kind, including this one. `will_retry`: this caller repeats its call
    after the rest that the source requested."""
    if error.is_local:
        return None
    if error.error_code is ErrorCode.RATE_LIMIT:
        requested = timedelta(
            seconds=min(error.retry_after_seconds or 0.0, MAX_REST.total_seconds())
        )
        return (
            requested
            if will_retry
            else max(requested, _AFTER_RATE_LIMIT.get(source, _DEFAULT_REST))
        )
    if error.error_code in {ErrorCode.AUTH_ERROR, ErrorCode.FORBIDDEN}:
        return _AFTER_REFUSAL if error.error_code is ErrorCode.AUTH_ERROR else None
    if failures < MAX_FAILURES:
        return None
    return _AFTER_SILENCE.get(source, _DEFAULT_REST) if is_silent(error) else _DEFAULT_REST


def is_down(error: SourceError) -> bool:
    """Whether the error counts as a failure of the source."""
    return is_silent(error) or (error.error_code is ErrorCode.UPSTREAM_5XX and not error.is_local)


def is_silent(error: SourceError) -> bool:
    """Whether the source did not answer at all, which is how a source bans this system."""
    return error.error_code in _SILENT_CODES and error.http_status is None and not error.is_local


def is_call_repeatable(source: SourceApi, error: SourceError, longest_wait_seconds: float) -> bool:
    """Whether the same job may repeat the call."""
    if not error.retryable or (error.retry_after_seconds or 0.0) > longest_wait_seconds:
        return False
    return error.error_code is not ErrorCode.RATE_LIMIT or source is not SourceApi.INPI


def postponed_until(outcome: SourceOutcome, postponements: int) -> datetime | None:
    """Return when the job continues if its required source asks all callers to wait, or None if the outcome
    counts. A job whose own calls were answered with 429 is postponed at most `MAX_POSTPONEMENTS` times.
    There is no limit if the source rested before the first call."""
    error = outcome.error
    if outcome.source not in REQUIRED_SOURCES or error is None or error.not_before is None:
        return None
    return error.not_before if postponements < MAX_POSTPONEMENTS or not outcome.was_called else None


# These entries change from call to call although the company does not.
VOLATILE = frozenset({"score", "date_mise_a_jour", "meta", "links"})


def document_checksum(document: Mapping[str, object]) -> str:
    """Documents that differ only in volatile entries or in the order of their keys have the same checksum."""
    stable = json.dumps(
        _without_volatile(document), ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(stable.encode("utf-8", "surrogatepass")).hexdigest()


def _without_volatile(value: object) -> object:
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {key: _without_volatile(inner) for key, inner in entries if key not in VOLATILE}
    if isinstance(value, list | tuple):
        return [_without_volatile(inner) for inner in cast("list[object]", value)]
    return value


_SEARCH, _INPI, _RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS

# The sources of each field, the preferred one first. A new register supplies most fields, as the last source.
PRIORITY: Mapping[str, tuple[SourceApi, ...]] = MappingProxyType(
    dict.fromkeys(FIELDS, tuple(SourceApi))
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
    """Merge the records into the earlier snapshot. A field keeps its value if no record has one, if a user
    has locked it, or if its source failed now and has a higher priority than the others."""
    before = before or Snapshot(identifiers.siren, CompanyFields())
    result: dict[str, Any] = {}  # Any: a field is a text or a day
    sources = dict(before.sources)
    for name in FIELDS:
        if name in locked:
            continue
        is_known = getattr(before.values, name) is not None
        for source in PRIORITY[name]:
            if is_known and source in failed and source is before.sources.get(name):
                break
            value = getattr(records[source].fields, name) if source in records else None
            if value is not None:
                sources[name], result[name] = source, value
                break
    found = records.values()
    is_masked = any(record.is_masked for record in found) if found else before.is_masked
    return Snapshot(identifiers.siren, replace(before.values, **result), sources, is_masked)


def changed_fields(before: Snapshot | None, after: Snapshot) -> dict[str, dict[str, str | None]]:
    old = before.values if before else CompanyFields()

    def shown(fields: CompanyFields, name: str) -> str | None:
        value = getattr(fields, name)
        return None if value is None else str(value)

    return {
        name: {"before": shown(old, name), "after": shown(after.values, name)}
        for name in FIELDS
        if getattr(old, name) != getattr(after.values, name)
    }


def has_core_identity(snapshot: Snapshot) -> bool:
    values = snapshot.values
    return bool(values.legal_name and (values.address_line1 or values.postal_code or values.city))


def value_hash(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()


MAX_FAILED_SHARE = 0.1
MIN_COMPANIES = 20
# The sweep marks an expired snapshot within this time.
GRACE = timedelta(hours=1)
AGES: Mapping[str, timedelta] = {
    "up to a day": timedelta(days=1),
    "up to a week": timedelta(days=7),
    "up to 30 days": timedelta(days=30),
}
OLDER = "older"


@dataclass(frozen=True, kw_only=True)
class CompanyCoverage:
    """Numbers of companies. `ages` are the ages of the snapshots. `unexplained` counts failures without an
    error, `overdue` the SUCCESS companies whose data has expired."""

    statuses: Mapping[EnrichmentStatus, int]
    ages: Mapping[str, int]
    masked: int
    unexplained: int
    overdue: int

    @property
    def enriched(self) -> int:
        return sum(self.statuses.values())

    @property
    def companies(self) -> int:
        return sum(self.ages.values())

    @property
    def failed(self) -> int:
        return self.statuses.get(EnrichmentStatus.FAILED, 0)


def evaluate_coverage(coverage: CompanyCoverage) -> Iterator[DayFinding]:
    share = coverage.failed / coverage.enriched if coverage.enriched else 0.0
    is_high = share > MAX_FAILED_SHARE and coverage.enriched >= MIN_COMPANIES
    text = f"{coverage.failed} of {coverage.enriched} enrichments have failed ({share:.0%})"
    if coverage.unexplained:
        text = f"{coverage.unexplained} have failed without an error; {text}"
    passed = not is_high and not coverage.unexplained
    yield DayFinding("coverage", passed, f"{text}.", grave=bool(coverage.unexplained))
    text = "No company is SUCCESS with expired data."
    if coverage.overdue:
        text = (
            f"{coverage.overdue} companies are SUCCESS although their data has expired: "
            "does the sensor sweep_enrichments run?"
        )
    yield DayFinding("freshness", not coverage.overdue, text)
