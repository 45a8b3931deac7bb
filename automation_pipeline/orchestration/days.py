"""Days as partitions, and their metadata in Dagster."""

import warnings
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
from dagster import PreviewWarning

from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of, wall_time, zone
from automation_pipeline.core.settings import load_settings
from automation_pipeline.orchestration.ops import Metadata, as_metadata, counts_table, table

if TYPE_CHECKING:
    from automation_pipeline.audits.days import DayAudits
    from automation_pipeline.fiches.models.days import DayCoverage, DayFinding, SalesDay
    from automation_pipeline.transcription.models import DayTranscripts

SETTINGS = load_settings()

# Today is a partition too: its list can be fetched before the day ends.
DAYS = dg.DailyPartitionsDefinition(
    start_date=SETTINGS.automation_first_day.isoformat(),
    timezone=SETTINGS.automation_timezone,
    end_offset=1,
)

NO_DAY = (
    "Choose a day as YYYY-MM-DD, with --partition for an asset or "
    """--tags '{"dagster/partition": "2026-02-03"}' for a job."""
)


def day_of(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> date:
    if not context.has_partition_key:
        raise dg.Failure(NO_DAY, allow_retries=False)
    return date.fromisoformat(context.partition_key)


def span_of(day: date) -> tuple[datetime, datetime]:
    """From the start of the day to the start of the next, in the partitions' zone."""
    local = zone(SETTINGS.automation_timezone)
    first, last = (
        datetime.combine(day + timedelta(days=later), datetime.min.time()) for later in (0, 1)
    )
    return instant_of(first, local, FIRST_PASS), instant_of(last, local, FIRST_PASS)


def yesterday(context: dg.ScheduleEvaluationContext) -> str:
    """The partition of the day before the tick."""
    tick = wall_time(context.scheduled_execution_time, zone(SETTINGS.automation_timezone))
    return (tick.date() - timedelta(days=1)).isoformat()


def sales_day_metadata(day: "SalesDay") -> Metadata:
    counts = {
        "fiches": day.fiches,
        "new": day.new,
        "changed": day.changed,
        "missing cle": day.missing_cle,
        "without recordings": day.without_recordings,
    }
    return as_metadata(
        {name.replace(" ", "_"): count for name, count in counts.items()}
        | {
            "summary": table((f"{day.day:%A %d %B %Y}", ""), counts.items()),
            "revalidated_at": day.revalidated_at,
        }
    )


def coverage_metadata(coverage: "DayCoverage", errors: Mapping[str, int]) -> Metadata:
    return as_metadata(
        {
            "fiches": coverage.fiches,
            "with_details": coverage.with_details,
            "not_found": coverage.not_found,
            "without_details": coverage.without_details,
            "coverage": float(coverage.share),
            "failures": counts_table("cause", errors),
        }
    )


def transcripts_metadata(day: "DayTranscripts") -> Metadata:
    return as_metadata(
        {
            "recordings": day.recordings,
            "transcribed": day.transcribed,
            "coverage": float(day.coverage),
            "minutes_of_audio": float(day.minutes),
            "failures": counts_table("cause", day.failures),
        }
    )


def audits_metadata(day: "DayAudits") -> Metadata:
    from automation_pipeline.audits.days import NOT_CONFIGURED  # noqa: PLC0415  every job loads this module

    points = [
        (point.step, point.point, point.failing, point.judged, f"{point.share:.0%}")
        for point in day.failing_points
    ]
    return as_metadata(
        {
            "configurations": day.configs,
            "fiches": day.fiches,
            "wanted": day.wanted,
            "audited": day.audited,
            "failed": day.failed,
            "steps": day.steps,
            "failed_steps": day.steps_failed,
            "citations": day.citations,
            "removed_citations": day.citations_removed,
            "coverage": float(day.coverage),
            "non_compliant_share": float(day.non_compliant_share),
            "mean_score": None if day.mean_score is None else float(day.mean_score),
            "note": None if day.configs else NOT_CONFIGURED,
            "by_niveau": table(("niveau", "audits"), day.by_niveau.items()),
            "failing_points": table(
                ("step", "control point", "not met", "judged", "share"), points
            ),
            "failures": counts_table("cause", day.failures),
        }
    )


def check_severity(finding: "DayFinding") -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if finding.grave else dg.AssetCheckSeverity.WARN


def check_result(asset: str, finding: "DayFinding") -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=finding.check,
        passed=finding.passed,
        severity=check_severity(finding),
        description=finding.message,
    )


CHECKS = {
    "sales_list": {
        "not_empty_on_a_weekday": "A weekday has at least one sale.",
        "no_duplicate_ids": "No fiche is listed twice.",
        "volume_in_band": "The number of fiches is usual for the weekday.",
        "every_fiche_has_a_cle": "Every fiche has its access key (cle).",
    },
    "fiche_details": {
        "coverage": "Nearly every fiche of the day has its details.",
        "not_found_share": "Few fiches of the day are unknown to the CRM.",
    },
    "transcripts": {"transcript_coverage": "Nearly every recording of the day has its transcript."},
    "audit_outcomes": {
        "every_fiche_audited": "Nearly every fiche of the day has a result of each automatic configuration.",
        "steps_judged": "Nearly every step of the audits could be judged.",
        "evidence_holds": "Few quotations of the model were not found in the transcripts.",
    },
    "daily_quality_report": {"report_is_complete": "The file has one row per audit that counts."},
    "pricing_runs": {
        "success_rate": "Nearly every price change of the day succeeded.",
        "dead_letters": "Few failed price changes wait for a decision.",
        "no_mismatch": "The shop has the prices that were applied.",
        "invariants": "No price of the day broke a guardrail.",
    },
    "org_job_outcomes": {
        "no_fire_failed": "No due time of the day failed to create its job.",
        "nothing_left_due": "No schedule is due without a decision.",
        "no_invalid_cron": "The cron expression of every schedule can be read.",
    },
}


def check_specs(asset: dg.AssetsDefinition) -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        # Partitioned checks are a preview feature of Dagster (ADR 0005).
        warnings.simplefilter("ignore", PreviewWarning)
        return [
            dg.AssetCheckSpec(name, asset=asset, partitions_def=DAYS, description=description)
            for name, description in CHECKS[asset.key.to_user_string()].items()
        ]
