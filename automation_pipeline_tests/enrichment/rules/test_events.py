"""The events and log fields of the contract."""

from datetime import UTC, datetime

from automation_pipeline.core.events import Event
from automation_pipeline.enrichment.events import (
    EnrichmentFacts,
    enrichment_completed,
    enrichment_requested,
    enrichment_started,
    log_fields,
    source_fetched,
)
from automation_pipeline.enrichment.models import (
    CompanyFields,
    EnrichmentStatus,
    EnrichmentTrigger,
    ErrorCode,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.rules.evaluation import Evaluation
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
JOB = EnrichmentFacts(job_id=7, siren="552032534", attempt=2, tenant_id="t1", correlation_id="c1")
RECORD = SourceRecord(
    siren="552032534", fields=CompanyFields(legal_name="DANONE"), document={"officers": ["Secret"]}
)
ERROR = SourceError(
    error_code=ErrorCode.RATE_LIMIT, http_status=429, message="It is busy.", retryable=True
)
FOUND = SourceOutcome(source=SourceApi.SEARCH, duration_ms=12, record=RECORD)
RATE_LIMITED = SourceOutcome(source=SourceApi.RCS, duration_ms=4200, attempts=3, error=ERROR)
PARTIAL = Evaluation(
    status=EnrichmentStatus.PARTIAL,
    success=2,
    required_failed=0,
    optional_failed=1,
    core_identity_present=True,
    error="API_ENTREPRISE_RCS:429:RATE_LIMIT",
    is_worth_retrying=True,
)


def requested(
    request_id: int = 3,
    trigger: EnrichmentTrigger = EnrichmentTrigger.REQUEST_CREATED,
    now: datetime = NOW,
) -> Event:
    values = {"tenant_id": "t1", "correlation_id": "c1", "now": now}
    return enrichment_requested(request_id, "552032534", None, trigger, **values)


EVENTS = [
    requested(),
    enrichment_started(JOB, NOW),
    source_fetched(JOB, FOUND, NOW),
    enrichment_completed(JOB, 3, PARTIAL, NOW),
]


@every_case("event", EVENTS, ids=lambda event: event.name)
def test_every_event_has_a_complete_envelope(event: Event) -> None:
    envelope = (event.tenant_id, event.correlation_id, event.occurred_at, event.producer)
    assert envelope == ("t1", "c1", NOW, "M3")


def test_a_requested_event_has_company_and_trigger() -> None:
    event = requested()
    assert event.name == "CompanyEnrichmentRequested"
    assert event.key == "enrichment:3:CompanyEnrichmentRequested:REQUEST_CREATED:1777888800000000"
    assert event.payload == {
        "request_id": "3", "company_siren": "552032534", "company_siret": None, "trigger": "REQUEST_CREATED",
    }  # fmt: skip


def test_a_started_event_has_the_attempt() -> None:
    event = enrichment_started(JOB, NOW)
    assert (event.name, event.key) == (
        "CompanyEnrichmentStarted",
        "enrichment:7:CompanyEnrichmentStarted:2",
    )
    assert event.payload == {"job_id": "7", "company_siren": "552032534", "attempt": 2}


@every_case(
    ("outcome", "expected"),
    [
        (FOUND, ("API_RECHERCHE_ENTREPRISES", "SUCCESS", 200, None, 12, 1)),
        (RATE_LIMITED, ("API_ENTREPRISE_RCS", "FAILED", 429, "RATE_LIMIT", 4200, 3)),
    ],
)
def test_a_source_fetched_event_has_the_result_without_the_answer(
    outcome: SourceOutcome, expected: tuple[object, ...]
) -> None:
    event = source_fetched(JOB, outcome, NOW)
    names = ("source_api", "status", "http_status", "error_code", "duration_ms", "attempts")
    assert event.name == "CompanyEnrichmentSourceFetched"
    assert event.payload == {
        "job_id": "7",
        "company_siren": "552032534",
        **dict(zip(names, expected, strict=True)),
    }


def test_a_completed_event_has_the_counts_of_the_contract() -> None:
    event = enrichment_completed(JOB, 3, PARTIAL, NOW)
    assert (event.name, event.key) == (
        "CompanyEnrichmentCompleted",
        "enrichment:7:CompanyEnrichmentCompleted:3",
    )
    assert enrichment_completed(JOB, None, PARTIAL, NOW).key.endswith(":-")
    assert event.payload == {
        "job_id": "7",
        "company_siren": "552032534",
        "enrichment_status": "PARTIAL",
        "sources_success_count": 2,
        "sources_failed_count": 1,
        "core_identity_present": True,
        "required_sources_failed_count": 0,
        "optional_sources_failed_count": 1,
        "request_id": "3",
    }


def test_each_event_has_its_own_key() -> None:
    other = EnrichmentFacts(
        job_id=8, siren="552032534", attempt=2, tenant_id="t1", correlation_id="c1"
    )
    third = EnrichmentFacts(
        job_id=7, siren="552032534", attempt=3, tenant_id="t1", correlation_id="c1"
    )
    keys = [
        *(event.key for event in EVENTS),
        *(
            one.key
            for one in (
                requested(4),
                requested(trigger=EnrichmentTrigger.MANUAL_REFRESH),
                requested(now=NOW.replace(minute=1)),
            )
        ),
        *(enrichment_started(job, NOW).key for job in (other, third)),
        source_fetched(JOB, RATE_LIMITED, NOW).key,
        *(enrichment_completed(JOB, request, PARTIAL, NOW).key for request in (None, 4)),
        enrichment_completed(other, 3, PARTIAL, NOW).key,
    ]
    assert len(set(keys)) == len(keys)
    assert source_fetched(third, FOUND, NOW).key == source_fetched(JOB, FOUND, NOW).key
    assert (
        enrichment_completed(third, 3, PARTIAL, NOW).key
        == enrichment_completed(JOB, 3, PARTIAL, NOW).key
    )


CONTRACT_FIELDS = {
    "timestamp", "level", "correlation_id", "tenant_id", "request_id", "job_id", "company_siren", "source_api",
    "event_type", "http_status", "error_code", "error_message", "duration_ms",
}  # fmt: skip
NEVER_NULL = {"correlation_id", "tenant_id", "company_siren", "event_type"}
LOGGER_FIELDS = {"timestamp", "level"}

LOGGED_JOB = EnrichmentFacts(
    job_id=7, siren="552032534", attempt=1, tenant_id="t1", correlation_id="c1"
)
SECRET_RECORD = SourceRecord(
    siren="552032534",
    fields=CompanyFields(legal_name="Secret"),
    document={"officers": [{"nom": "Secret"}]},
)
DOWN_ERROR = SourceError(
    error_code=ErrorCode.UPSTREAM_5XX, http_status=503, message="It is down.", retryable=True
)
OUTCOMES = [
    None,
    SourceOutcome(source=SourceApi.INPI, duration_ms=12, record=SECRET_RECORD),
    SourceOutcome(source=SourceApi.INPI, duration_ms=12, error=DOWN_ERROR),
]


@every_case("outcome", OUTCOMES)
def test_a_log_line_has_exactly_the_thirteen_fields(outcome: SourceOutcome | None) -> None:
    fields = log_fields("CompanyEnrichmentSourceFetched", LOGGED_JOB, outcome=outcome)
    assert fields.keys() | LOGGER_FIELDS == CONTRACT_FIELDS
    assert all(fields[name] for name in NEVER_NULL)
    assert "Secret" not in str(fields)


def test_the_log_fields_of_a_failed_call_describe_the_error() -> None:
    fields = log_fields("CompanyEnrichmentSourceFetched", LOGGED_JOB, outcome=OUTCOMES[2])
    values = [
        fields[name]
        for name in ("source_api", "http_status", "error_code", "error_message", "duration_ms")
    ]
    assert values == ["INPI_RNE", 503, "UPSTREAM_5XX", "It is down.", 12]


def test_a_request_is_logged_with_its_id_and_an_optional_job() -> None:
    facts = EnrichmentFacts(job_id=None, siren="552032534", tenant_id="t1", correlation_id="c1")
    fields = log_fields("CompanyEnrichmentRequested", facts, request_id=3)
    assert (fields["request_id"], fields["job_id"]) == ("3", None)
    assert log_fields("CompanyEnrichmentRequested", LOGGED_JOB)["job_id"] == "7"
