"""What a job comes to: the contract's table, its vectors, and its invariants over whatever sources
may do."""

import re
from dataclasses import replace

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
from automation_pipeline.enrichment.rules.evaluation import (
    Evaluation,
    evaluate_abandoned_job,
    evaluate_job,
)
from automation_pipeline_tests.tables import every_case

SEARCH, INPI, RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS
RECORD = SourceRecord(
    siren="552032534", said=CompanyFields(legal_name="DANONE", city="PARIS"), document={}
)
SUCCESS, PARTIAL, FAILED = (
    EnrichmentStatus.SUCCESS,
    EnrichmentStatus.PARTIAL,
    EnrichmentStatus.FAILED,
)


def ok(source: SourceApi) -> SourceOutcome:
    return SourceOutcome(source=source, duration_ms=12, record=RECORD)


def bad(
    source: SourceApi, code: ErrorCode, status: int | None = None, *, retryable: bool = False
) -> SourceOutcome:
    error = SourceError(error_code=code, http_status=status, message="No.", retryable=retryable)
    return SourceOutcome(source=source, duration_ms=12, error=error)


def counts(one: Evaluation) -> tuple[int, int, int, int]:
    return one.success, one.failed, one.required_failed, one.optional_failed


def test_two_that_answer_and_one_that_is_too_busy() -> None:
    outcomes = [ok(SEARCH), ok(INPI), bad(RCS, ErrorCode.RATE_LIMIT, 429, retryable=True)]
    one = evaluate_job(outcomes, core_identity_present=True)
    assert (one.status, one.error, counts(one)) == (
        PARTIAL,
        "API_ENTREPRISE_RCS:429:RATE_LIMIT",
        (2, 1, 0, 1),
    )
    assert one.is_worth_retrying


def test_the_required_source_that_finds_nobody() -> None:
    one = evaluate_job([bad(SEARCH, ErrorCode.NOT_FOUND, 200)], core_identity_present=False)
    assert (one.status, one.error, counts(one)) == (
        FAILED,
        "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND",
        (0, 1, 1, 0),
    )


def test_the_required_source_that_does_not_answer_is_not_made_good_by_another() -> None:
    outcomes = [bad(SEARCH, ErrorCode.TIMEOUT, retryable=True), ok(INPI)]
    one = evaluate_job(outcomes, core_identity_present=True)
    assert (one.status, one.error) == (FAILED, "API_RECHERCHE_ENTREPRISES:-:TIMEOUT")


def test_a_company_without_a_name_was_not_found() -> None:
    one = evaluate_job([ok(SEARCH)], core_identity_present=False)
    assert (one.status, one.error, counts(one)) == (
        FAILED,
        "API_RECHERCHE_ENTREPRISES:200:NOT_FOUND",
        (0, 1, 1, 0),
    )


def test_one_whose_name_may_not_be_told_was_found_all_the_same() -> None:
    masked = SourceOutcome(source=SEARCH, duration_ms=12, record=replace(RECORD, is_masked=True))
    one = evaluate_job([masked], core_identity_present=False)
    assert (one.status, one.error) == (FAILED, "API_RECHERCHE_ENTREPRISES:200:FORBIDDEN")


def test_sources_that_were_not_called_count_nowhere() -> None:
    assert evaluate_job([ok(SEARCH)], core_identity_present=True).status is SUCCESS


def test_without_the_required_source_nothing_succeeds() -> None:
    one = evaluate_job([ok(INPI)], core_identity_present=True)
    assert (one.status, one.error) == (FAILED, "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE")


@every_case(("counted", "status"), [(True, PARTIAL), (False, SUCCESS)])
def test_an_association_need_not_be_in_the_trade_register(
    counted: bool, status: EnrichmentStatus
) -> None:
    outcomes = [ok(SEARCH), bad(RCS, ErrorCode.NOT_FOUND, 404)]
    assert (
        evaluate_job(outcomes, core_identity_present=True, optional_not_found_counts=counted).status
        is status
    )


_OUTCOMES = st.fixed_dictionaries(
    {},
    optional={
        source: st.just(ok(source))
        | st.builds(
            bad,
            st.just(source),
            st.sampled_from(ErrorCode),
            st.none() | st.sampled_from([200, 404, 429, 503]),
        )
        for source in SourceApi
    },
).map(lambda chosen: list(chosen.values()))


@given(outcomes=_OUTCOMES, core=st.booleans(), counted=st.booleans())
def test_the_invariants_hold_whatever_the_sources_do(
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
        ([ok(SEARCH), ok(INPI)], "-:-:INTERNAL_ERROR", (2, 0, 0, 0)),
        (
            [bad(SEARCH, ErrorCode.SOURCE_UNAVAILABLE)],
            "API_RECHERCHE_ENTREPRISES:-:SOURCE_UNAVAILABLE|-:-:INTERNAL_ERROR",
            (0, 1, 1, 0),
        ),
    ],
)
def test_a_job_that_nobody_could_end_counts_what_was_heard(
    outcomes: list[SourceOutcome], error: str, counted: tuple[int, ...]
) -> None:
    one = evaluate_abandoned_job(outcomes, core_identity_present=True)
    assert (one.status, one.error, counts(one), one.core_identity_present) == (
        FAILED,
        error,
        counted,
        False,
    )
    assert one.is_worth_retrying
