"""Names, keys and default values that the contract defines."""

from dataclasses import fields
from datetime import timedelta
from enum import StrEnum

from automation_pipeline.enrichment import events, tables
from automation_pipeline.enrichment.models import (
    PRODUCER,
    REQUIRED_SOURCES,
    CallStatus,
    DocumentType,
    EnrichmentOptions,
    EnrichmentStatus,
    EnrichmentTrigger,
    ErrorCode,
    RequestOutcome,
    SourceApi,
    claim_key,
)
from automation_pipeline.enrichment.rules.evaluation import Evaluation
from automation_pipeline_tests.cases import every_case

CONTRACT: dict[type[StrEnum], str] = {
    EnrichmentStatus: "PENDING RUNNING SUCCESS PARTIAL FAILED STALE",
    SourceApi: "API_RECHERCHE_ENTREPRISES INPI_RNE API_ENTREPRISE_RCS",
    ErrorCode: "MISSING_COMPANY_IDENTIFIER INVALID_SIREN_FORMAT INVALID_SIRET_FORMAT SIREN_SIRET_MISMATCH AUTH_ERROR "
    "FORBIDDEN NOT_FOUND RATE_LIMIT TIMEOUT UPSTREAM_5XX SOURCE_UNAVAILABLE INTERNAL_ERROR",
    EnrichmentTrigger: "REQUEST_CREATED REQUEST_OPENED MANUAL_REFRESH STALE_SWEEP",
    CallStatus: "SUCCESS FAILED",
    DocumentType: "ENTERPRISE_SEARCH RNE_FORMALITY RCS_EXTRACT",
    RequestOutcome: "CACHE_HIT ATTACHED ENQUEUED",
}


@every_case(("words", "named"), CONTRACT.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_enum_values_match_the_contract_in_order(words: type[StrEnum], named: str) -> None:
    assert [word.value for word in words] == named.split()


def test_event_names_and_producer_match_the_contract() -> None:
    names = (events.REQUESTED, events.STARTED, events.SOURCE_FETCHED, events.COMPLETED)
    assert [name.removeprefix("CompanyEnrichment") for name in names] == [
        "Requested", "Started", "SourceFetched", "Completed",
    ]  # fmt: skip
    assert PRODUCER == "M3"


def test_only_the_search_source_is_required() -> None:
    assert REQUIRED_SOURCES == (SourceApi.SEARCH,)


@every_case("table", [tables.EnrichmentRow, tables.CompanyRequestRow])
def test_table_constraints_allow_exactly_the_enrichment_states(table: type[tables.Table]) -> None:
    rules = [str(getattr(rule, "sqltext", "")) for rule in table.__table__.constraints]
    [allowed] = [rule for rule in rules if " IN (" in rule]
    assert (
        allowed.split(" IN ")[1]
        == "(" + ", ".join(f"'{status}'" for status in EnrichmentStatus) + ")"
    )


def test_the_job_columns_match_the_counts_of_an_evaluation() -> None:
    counted = {field.name for field in fields(Evaluation)}
    assert {"success", "required_failed", "optional_failed", "core_identity_present"} <= counted
    columns = set(tables.EnrichmentJobRow.__table__.columns.keys())
    assert {"sources_success_count", "required_failed_count", "optional_failed_count"} <= columns


def test_the_default_options_match_the_contract() -> None:
    options = EnrichmentOptions()
    assert (options.freshness, options.lock_seconds, options.heartbeat_seconds) == (
        timedelta(days=30),
        120,
        30,
    )
    assert (options.call_seconds, options.max_retries, options.max_attempts) == (5, 2, 3)
    assert (
        options.backoff.base_seconds,
        options.backoff.cap_seconds,
        options.backoff.multiplier,
    ) == (
        0.25,
        0.5,
        2,
    )
    assert (options.cooldown, options.longest_retry_after_seconds) == (timedelta(minutes=15), 5)
    assert options.sync_seconds < 1.2


def test_the_claim_key_of_a_company_matches_the_contract() -> None:
    assert claim_key("552032534") == "company_enrichment:552032534"
