"""What people read in Dagster about an enrichment, and about the companies as a whole."""

from collections.abc import Mapping, Sequence

import dagster as dg

from automation_pipeline.core.instants import iso
from automation_pipeline.enrichment.domain.coverage import CompanyCoverage, Judgement
from automation_pipeline.enrichment.domain.views import JobView, SourceView
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.markdown import table

Page = dict[str, dg.MetadataValue]


def job_page(job: JobView) -> Page:
    rows = [
        (one.source_api, one.status, one.http_status, one.error_code, one.attempts, f"{one.duration_ms} ms")
        for one in job.sources
    ]
    sources = table(("source", "status", "http", "error", "attempts", "took"), rows)
    texts = {
        "company": job.company_siren,
        "job": str(job.id),
        "state": job.state,
        "status": job.status,
        "error": job.enrichment_error,
        "not_before": iso(job.not_before) if job.not_before else None,
    }
    return {
        **{name: metadata.text(text) for name, text in texts.items() if text is not None},
        "attempt": metadata.integer(job.attempt),
        **({"sources": metadata.markdown(sources)} if rows else {}),
    }


def companies_page(coverage: CompanyCoverage, sources: Sequence[SourceView]) -> Page:
    rows = [
        (
            one.source_api,
            "" if one.resting_until is None else iso(one.resting_until),
            one.reason,
            one.failures,
            one.calls_today,
        )
        for one in sources
    ]
    return {
        "companies": metadata.integer(coverage.companies),
        "masked": metadata.integer(coverage.masked),
        **{f"status_{status.lower()}": metadata.integer(count) for status, count in coverage.statuses.items()},
        "coverage": metadata.markdown(
            _counts("status", {str(status): count for status, count in coverage.statuses.items()})
        ),
        "ages": metadata.markdown(_counts("age", coverage.ages)),
        "sources": metadata.markdown(table(("source", "rests until", "why", "failures", "calls today"), rows)),
    }


def judged(asset: str, finding: Judgement) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=finding.check,
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.ERROR if finding.grave else dg.AssetCheckSeverity.WARN,
        description=finding.says,
    )


def _counts(of: str, counts: Mapping[str, int]) -> str:
    return table((of, "companies"), counts.items())
