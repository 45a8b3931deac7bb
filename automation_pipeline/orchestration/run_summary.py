"""An automation run in Dagster: its summary, and the events of the day assets."""

from collections.abc import Iterator, Sequence
from datetime import date

import dagster as dg

from automation_pipeline.audits.days import audits_of_day, judge_audits
from automation_pipeline.automation.models.runs import Run, RunStatus, failed_days
from automation_pipeline.automation.queries.ledger import (
    days_covered,
    failed_fiches,
    reasons_of_run,
)
from automation_pipeline.automation.queries.schedules import schedule_of_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.mirror import check_sales_day
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.queries.mirror import coverage_of, sales_day
from automation_pipeline.fiches.rules import evaluate_coverage
from automation_pipeline.orchestration.days import (
    DAYS,
    audits_metadata,
    check_severity,
    coverage_metadata,
    sales_day_metadata,
    transcripts_metadata,
)
from automation_pipeline.orchestration.ops import Metadata, as_metadata, table
from automation_pipeline.transcription.queries.runs import transcripts_of_day
from automation_pipeline.transcription.rules import judge_transcripts

MOST_FAILED_FICHES = 100


def run_summary(services: Services, run: Run) -> Metadata:
    """The metadata of `finalise_run`: counts, reasons, failed fiches and days, and how to get the
    report."""
    with services.database.reading() as session:
        reasons = reasons_of_run(session, run.id)
        failed = failed_fiches(session, run.id, MOST_FAILED_FICHES)
    counts = f"{run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    shown = f"the first {len(failed)} of {run.failed_fiches}"
    return as_metadata(
        {
            "run_id": run.id,
            "status": run.status,
            "selected": run.selected_fiches,
            "successful": run.successful_fiches,
            "failed": run.failed_fiches,
            "ignored": run.ignored_fiches,
            "conservation": f"{run.selected_fiches} selected = {counts}",
            "report": f"automation runs report {run.id}",
            "reasons": table(
                ("status", "reason", "fiches"),
                ((one.status, one.reason, one.fiches) for one in reasons),
            ),
            "failed_fiches": table(("fiche", "reason", "error"), failed),
            "failed_fiches_shown": shown if run.failed_fiches > len(failed) else None,
            "failed_days": table(
                ("day", "error"), ((one["date"], one["error"]) for one in failed_days(run))
            ),
            "error": run.error_message,
        }
    )


BEFORE_FILTERS = ("sales_list", "fiche_details")
ASSETS = (*BEFORE_FILTERS, "transcripts", "audit_outcomes")
AssetEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


def assets_of_run(services: Services, run: Run) -> Sequence[str]:
    """The assets that the run worked on."""
    with services.database.reading() as session:
        schedule = schedule_of_run(session, run.schedule_id)
    wanted = {"transcripts": schedule.run_transcription, "audit_outcomes": schedule.run_audits}
    return [asset for asset in ASSETS if wanted.get(asset, True)]


def asset_events(
    services: Services, run: Run, assets: Sequence[str] = ASSETS
) -> Iterator[AssetEvent]:
    """For each partitioned day and each asset: a materialization or an observation, and the
    checks."""
    with services.database.reading() as session:
        days = {
            day: covered
            for day, covered in days_covered(session, run.id).items()
            if DAYS.has_partition_key(day.isoformat())
        }
    is_whole_run = run.status in {RunStatus.COMPLETED, RunStatus.PARTIAL}
    of_run = as_metadata({"automation_run": run.id})
    for day, covered in days.items():
        for asset, (values, findings) in _states(services, day).items():
            is_whole_asset = asset in BEFORE_FILTERS or not covered.is_reduced
            is_done = is_whole_run and covered.is_whole and is_whole_asset
            event = dg.AssetMaterialization if is_done else dg.AssetObservation
            if asset in assets and values is not None:
                yield event(asset_key=asset, partition=day.isoformat(), metadata=values | of_run)
                for finding in findings:
                    yield dg.AssetCheckEvaluation(
                        asset_key=dg.AssetKey(asset),
                        check_name=finding.check,
                        passed=finding.passed,
                        severity=check_severity(finding),
                        description=finding.message,
                        partition=day.isoformat(),
                    )


def _states(
    services: Services, day: date
) -> dict[str, tuple[Metadata | None, Sequence[DayFinding]]]:
    """The metadata and the check results of each asset. A sales list that was never fetched has no
    metadata: only the details of its fiches contain the day."""
    with services.database.reading() as session:
        listed, details = sales_day(session, day), coverage_of(session, day)
        spoken, audited = transcripts_of_day(session, day), audits_of_day(session, day)
    has_sales_list = listed is not None
    return {
        "sales_list": (
            sales_day_metadata(listed) if listed else None,
            check_sales_day(day, database=services.database),
        ),
        "fiche_details": (
            coverage_metadata(details, {}),
            evaluate_coverage(details, has_sales_list=has_sales_list),
        ),
        "transcripts": (
            transcripts_metadata(spoken),
            [judge_transcripts(spoken, has_sales_list=has_sales_list)],
        ),
        "audit_outcomes": (
            audits_metadata(audited),
            judge_audits(audited, has_sales_list=has_sales_list),
        ),
    }
