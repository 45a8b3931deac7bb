"""Every line has the thirteen fields of the contract, and nothing of what a source answered."""

from automation_pipeline.enrichment.events import EnrichmentFacts, JobFacts, log_fields
from automation_pipeline.enrichment.models import (
    CompanyFields,
    ErrorCode,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline_tests.tables import every_case

THIRTEEN = {
    "timestamp", "level", "correlation_id", "tenant_id", "request_id", "job_id", "company_siren", "source_api",
    "event_type", "http_status", "error_code", "error_message", "duration_ms",
}  # fmt: skip
NEVER_NULL = {"correlation_id", "tenant_id", "company_siren", "event_type"}
OF_THE_LOG = {"timestamp", "level"}

JOB = JobFacts(job_id=7, siren="552032534", attempt=1, tenant_id="t1", correlation_id="c1")
RECORD = SourceRecord(
    siren="552032534",
    said=CompanyFields(legal_name="Secret"),
    document={"officers": [{"nom": "Secret"}]},
)
ERROR = SourceError(
    error_code=ErrorCode.UPSTREAM_5XX, http_status=503, message="It is down.", retryable=True
)
OUTCOMES = [
    None,
    SourceOutcome(source=SourceApi.INPI, duration_ms=12, record=RECORD),
    SourceOutcome(source=SourceApi.INPI, duration_ms=12, error=ERROR),
]


@every_case("outcome", OUTCOMES)
def test_a_line_has_all_of_them_and_no_other(outcome: SourceOutcome | None) -> None:
    fields = log_fields("CompanyEnrichmentSourceFetched", JOB, outcome=outcome)
    assert fields.keys() | OF_THE_LOG == THIRTEEN
    assert all(fields[name] for name in NEVER_NULL)
    assert "Secret" not in str(fields)


def test_a_call_that_failed_says_how() -> None:
    fields = log_fields("CompanyEnrichmentSourceFetched", JOB, outcome=OUTCOMES[2])
    said = [
        fields[name]
        for name in ("source_api", "http_status", "error_code", "error_message", "duration_ms")
    ]
    assert said == ["INPI_RNE", 503, "UPSTREAM_5XX", "It is down.", 12]


def test_a_request_is_logged_with_its_id_and_maybe_a_job() -> None:
    facts = EnrichmentFacts(job_id=None, siren="552032534", tenant_id="t1", correlation_id="c1")
    fields = log_fields("CompanyEnrichmentRequested", facts, request_id=3)
    assert (fields["request_id"], fields["job_id"]) == ("3", None)
    assert log_fields("CompanyEnrichmentRequested", JOB)["job_id"] == "7"
