"""Evaluation of a job: status, error, next due time, and the coverage checks."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.enrichment.models import (
    ENRICHMENT,
    REQUIRED_SOURCES,
    CompanyFields,
    EnrichmentStatus,
    ErrorCode,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.models import EnrichmentStatus as S
from automation_pipeline.enrichment.rules.evaluation import (
    LOST_WORKER,
    MAX_ERROR_LENGTH,
    CompanyCoverage,
    Evaluation,
    cooldown_until,
    due_at,
    error_item,
    error_text,
    evaluate_coverage,
    evaluate_job,
    is_fresh,
    spread_freshness,
)
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline_tests.cases import every_case

SEARCH, INPI, RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS
RECORD = SourceRecord(
    siren="552032534", fields=CompanyFields(legal_name="DANONE", city="PARIS"), document={}
)
SUCCESS, PARTIAL, FAILED = (
    EnrichmentStatus.SUCCESS,
    EnrichmentStatus.PARTIAL,
    EnrichmentStatus.FAILED,
)


def answered(source: SourceApi) -> SourceOutcome:
    return SourceOutcome(source=source, duration_ms=12, record=RECORD)


def failed(
    source: SourceApi, code: ErrorCode, status: int | None = None, *, retryable: bool = False
) -> SourceOutcome:
    error = SourceError(error_code=code, http_status=status, message="No.", retryable=retryable)
    return SourceOutcome(source=source, duration_ms=12, error=error)


def counts(one: Evaluation) -> tuple[int, int, int, int]:
    return one.success, one.failed, one.required_failed, one.optional_failed


def test_a_rate_limited_optional_source_gives_partial() -> None:
    outcomes = [
        answered(SEARCH),
        answered(INPI),
        failed(RCS, ErrorCode.RATE_LIMIT, 429, retryable=True),
    ]
    one = evaluate_job(outcomes, core_identity_present=True)
    assert (one.status, one.error, counts(one)) == (
        PARTIAL,
        "API_ENTREPRISE_RCS:429:RATE_LIMIT",
        (2, 1, 0, 1),
    )
    assert one.is_worth_retrying


def test_a_required_source_without_the_company_fails_the_job() -> None:
    one = evaluate_job([failed(SEARCH, ErrorCode.NOT_FOUND, 200)], core_identity_present=False)
    assert (one.status, one.error, counts(one)) == (
        FAILED,
        "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND",
        (0, 1, 1, 0),
    )


def test_an_optional_source_does_not_replace_a_failed_required_one() -> None:
    outcomes = [failed(SEARCH, ErrorCode.TIMEOUT, retryable=True), answered(INPI)]
    one = evaluate_job(outcomes, core_identity_present=True)
    assert (one.status, one.error) == (FAILED, "API_RECHERCHE_ENTREPRISES:-:TIMEOUT")


def test_a_company_without_a_name_fails_as_not_found() -> None:
    one = evaluate_job([answered(SEARCH)], core_identity_present=False)
    assert (one.status, one.error, counts(one)) == (
        FAILED,
        "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND",
        (0, 1, 1, 0),
    )


def test_a_company_with_a_masked_name_fails_as_forbidden() -> None:
    masked = SourceOutcome(source=SEARCH, duration_ms=12, record=replace(RECORD, is_masked=True))
    one = evaluate_job([masked], core_identity_present=False)
    assert (one.status, one.error) == (FAILED, "API_RECHERCHE_ENTREPRISES:200:FORBIDDEN")


def test_sources_that_were_not_called_are_not_counted() -> None:
    assert evaluate_job([answered(SEARCH)], core_identity_present=True).status is SUCCESS


def test_a_job_without_the_required_source_fails() -> None:
    one = evaluate_job([answered(INPI)], core_identity_present=True)
    assert (one.status, one.error) == (FAILED, "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE")


@every_case(("counted", "status"), [(True, PARTIAL), (False, SUCCESS)])
def test_not_found_in_an_optional_source_counts_only_if_configured(
    counted: bool, status: EnrichmentStatus
) -> None:
    outcomes = [answered(SEARCH), failed(RCS, ErrorCode.NOT_FOUND, 404)]
    assert (
        evaluate_job(outcomes, core_identity_present=True, optional_not_found_counts=counted).status
        is status
    )


_OUTCOMES = st.fixed_dictionaries(
    {},
    optional={
        source: st.just(answered(source))
        | st.builds(
            failed,
            st.just(source),
            st.sampled_from(ErrorCode),
            st.none() | st.sampled_from([200, 404, 429, 503]),
        )
        for source in SourceApi
    },
).map(lambda chosen: list(chosen.values()))


@given(outcomes=_OUTCOMES, core=st.booleans(), counted=st.booleans())
def test_evaluation_invariants_hold_for_any_outcomes(
    outcomes: list[SourceOutcome], core: bool, counted: bool
) -> None:
    one = evaluate_job(outcomes, core_identity_present=core, optional_not_found_counts=counted)
    assert ENRICHMENT.can_move(EnrichmentStatus.RUNNING, one.status)
    assert one.failed == one.required_failed + one.optional_failed
    assert one.optional_failed <= len(SourceApi) - len(REQUIRED_SOURCES)
    match one.status:
        case EnrichmentStatus.SUCCESS:
            assert (core, one.required_failed, one.optional_failed) == (True, 0, 0)
        case EnrichmentStatus.PARTIAL:
            assert (core, one.required_failed, one.optional_failed > 0) == (True, 0, True)
        case _:
            assert one.required_failed > 0 or not core
            assert one.error
    for item in (one.error or "").split("|"):
        assert not item or re.fullmatch(r"[A-Z_]+:(-|\d{3}):[A-Z0-9_]+", item)


@every_case(
    ("outcomes", "error", "counted"),
    [
        ([], "-:-:INTERNAL_ERROR", (0, 1, 1, 0)),
        ([answered(SEARCH), answered(INPI)], "-:-:INTERNAL_ERROR", (2, 0, 0, 0)),
        (
            [failed(SEARCH, ErrorCode.SOURCE_UNAVAILABLE)],
            "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE|-:-:INTERNAL_ERROR",
            (0, 1, 1, 0),
        ),
    ],
)
def test_an_abandoned_job_fails_and_counts_its_calls(
    outcomes: list[SourceOutcome], error: str, counted: tuple[int, ...]
) -> None:
    one = evaluate_job(outcomes, core_identity_present=True, is_abandoned=True)
    assert (one.status, one.error, counts(one), one.core_identity_present) == (
        FAILED,
        error,
        counted,
        False,
    )
    assert one.is_worth_retrying


def test_the_error_text_is_in_call_order() -> None:
    items = [
        error_item(SourceApi.INPI, 503, ErrorCode.UPSTREAM_5XX),
        error_item(SourceApi.RCS, None, ErrorCode.TIMEOUT),
    ]
    assert error_text(items) == "INPI_RNE:503:UPSTREAM_5XX|API_ENTREPRISE_RCS:-:TIMEOUT"


def test_a_long_error_text_is_cut_after_a_complete_item() -> None:
    text = error_text(["x" * 999] * 4)
    assert (len(text), text.count("|")) == (1999, 1)
    assert error_text(["x" * 999, "y" * 1000, "z"]) == f"{'x' * 999}|{'y' * 1000}"
    assert MAX_ERROR_LENGTH == 2000


def test_the_error_of_a_lost_worker_names_no_source() -> None:
    assert LOST_WORKER == "-:-:INTERNAL_ERROR"


NOW, DAYS = datetime(2026, 5, 4, tzinfo=UTC), timedelta(days=30)
MINUTES = timedelta(minutes=15)


def evaluation(status: str, *, retryable: bool) -> Evaluation:
    return Evaluation(
        status=EnrichmentStatus(status),
        success=1,
        required_failed=0,
        optional_failed=1,
        core_identity_present=True,
        error="X:-:TIMEOUT",
        is_worth_retrying=retryable,
    )


@every_case(
    ("age", "fresh"),
    [(timedelta(0), True), (DAYS - timedelta(seconds=1), True), (DAYS, False), (2 * DAYS, False)],
)
def test_a_snapshot_is_stale_at_exactly_the_freshness_age(age: timedelta, fresh: bool) -> None:
    assert is_fresh(NOW - age, NOW, DAYS) is fresh


def test_a_missing_snapshot_is_not_fresh() -> None:
    assert not is_fresh(None, NOW, DAYS)


@every_case(
    ("status", "retryable", "retries", "hours"),
    [("PARTIAL", True, 0, 6), ("PARTIAL", True, 1, 24), ("FAILED", True, 2, 72)],
)
def test_a_retryable_result_is_due_after_6_24_and_72_hours(
    status: str, retryable: bool, retries: int, hours: int
) -> None:
    assert due_at(
        "552032534", evaluation(status, retryable=retryable), retries, NOW, DAYS
    ) == NOW + timedelta(hours=hours)


@every_case(
    ("status", "retryable", "retries"),
    [("SUCCESS", True, 0), ("PARTIAL", False, 0), ("FAILED", True, 3)],
)
def test_other_results_are_due_when_they_become_stale(
    status: str, retryable: bool, retries: int
) -> None:
    due = due_at("552032534", evaluation(status, retryable=retryable), retries, NOW, DAYS)
    assert timedelta(days=30) <= due - NOW <= timedelta(days=33)


@given(st.from_regex(r"[0-9]{9}", fullmatch=True))
def test_refreshes_are_spread_over_a_tenth_of_the_freshness(siren: str) -> None:
    assert DAYS <= spread_freshness(siren, DAYS) <= 1.1 * DAYS
    assert spread_freshness(siren, DAYS) == spread_freshness(siren, DAYS)
    assert spread_freshness("100000000", DAYS) == DAYS
    assert spread_freshness("100000999", DAYS) == 1.1 * DAYS


@every_case(
    ("status", "ago", "cools_down"),
    [
        ("SUCCESS", timedelta(minutes=14), True),
        ("SUCCESS", timedelta(minutes=15), False),
        ("PARTIAL", timedelta(0), True),
        ("FAILED", timedelta(0), False),
    ],
)
def test_a_refresh_waits_for_the_cooldown_unless_the_company_failed(
    status: str, ago: timedelta, cools_down: bool
) -> None:
    until = cooldown_until(EnrichmentStatus(status), NOW - ago, NOW, MINUTES)
    assert until == (NOW - ago + MINUTES if cools_down else None)


def test_the_first_refresh_has_no_cooldown() -> None:
    assert cooldown_until(EnrichmentStatus.SUCCESS, None, NOW, MINUTES) is None


def findings(**counts: object) -> dict[str, DayFinding]:
    none = {"statuses": {}, "ages": {}, "masked": 0, "unexplained": 0, "overdue": 0}
    coverage = CompanyCoverage(**(none | counts))
    return {one.check: one for one in evaluate_coverage(coverage)}  # type: ignore[arg-type]


@every_case(
    ("success", "failed", "passes"),
    [(0, 0, True), (90, 10, True), (89, 11, False), (0, 19, True), (0, 20, False)],
)
def test_the_coverage_check_fails_if_more_than_a_tenth_failed(
    success: int, failed: int, passes: bool
) -> None:
    coverage = findings(statuses={S.SUCCESS: success, S.FAILED: failed})["coverage"]
    assert (coverage.passed, coverage.grave) == (passes, False)


def test_a_failure_without_an_error_is_a_grave_finding() -> None:
    coverage = findings(statuses={S.SUCCESS: 99, S.FAILED: 1}, unexplained=1)["coverage"]
    assert (coverage.passed, coverage.grave) == (False, True)
    assert coverage.message == (
        "1 have failed without an error; 1 of 100 enrichments have failed (1%)."
    )


@every_case("overdue", [0, 1])
def test_an_overdue_success_fails_the_freshness_check(overdue: int) -> None:
    finding = findings(overdue=overdue)["freshness"]
    messages = [
        "No company is SUCCESS with expired data.",
        "1 companies are SUCCESS although their data has expired: does the sensor sweep_enrichments run?",
    ]
    assert finding == DayFinding("freshness", not overdue, messages[overdue])


CONTRACT_TRANSITIONS = {
    ("PENDING", "RUNNING"), ("RUNNING", "SUCCESS"), ("RUNNING", "PARTIAL"), ("RUNNING", "FAILED"),
    ("SUCCESS", "STALE"), ("PARTIAL", "STALE"), ("STALE", "RUNNING"), ("FAILED", "RUNNING"), ("PARTIAL", "RUNNING"),
}  # fmt: skip
# A job waits for its required register.
POSTPONED = {("RUNNING", "PENDING"), ("RUNNING", "STALE")}


def test_the_legal_transitions_are_those_of_the_contract_and_postponement() -> None:
    legal = {
        (a.value, b.value)
        for a, b in product(EnrichmentStatus, EnrichmentStatus)
        if b in ENRICHMENT.moves[a]
    }
    assert legal == CONTRACT_TRANSITIONS | POSTPONED
