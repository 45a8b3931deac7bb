"""An automation run in Dagster: its summary, and the events of the day assets."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import dagster as dg

from automation_pipeline.audits.days import audits_of_day, judge_audits
from automation_pipeline.automation.models.runs import Run, RunStatus
from automation_pipeline.automation.queries.ledger import (
    days_covered,
    failed_fiches,
    reasons_of_run,
)
from automation_pipeline.automation.queries.schedules import schedule_of_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.mirror import check_details_day, check_sales_day
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.queries.mirror import coverage_of, sales_day
from automation_pipeline.orchestration import audits, metadata, transcripts
from automation_pipeline.orchestration.days import DAYS, coverage_metadata, sales_day_metadata
from automation_pipeline.orchestration.metadata import table
from automation_pipeline.storage.database import Session
from automation_pipeline.transcription.queries.runs import transcripts_of_day
from automation_pipeline.transcription.rules import judge_transcripts

MOST_FAILED_FICHES = 100


def run_summary(services: Services, run: Run) -> dict[str, dg.MetadataValue]:
    """The metadata of `finalise_run`: counts, reasons, failed fiches, and how to get the report."""
    with services.database.reading() as session:
        reasons = reasons_of_run(session, run.id)
        failed = failed_fiches(session, run.id, MOST_FAILED_FICHES)
    counts = f"{run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    summary = {
        "run_id": metadata.integer(run.id),
        "status": metadata.text(run.status),
        "selected": metadata.integer(run.selected_fiches),
        "successful": metadata.integer(run.successful_fiches),
        "failed": metadata.integer(run.failed_fiches),
        "ignored": metadata.integer(run.ignored_fiches),
        "conservation": metadata.text(f"{run.selected_fiches} selected = {counts}"),
        "report": metadata.text(f"automation runs report {run.id}"),
    }
    if reasons:
        rows = [(one.status, one.reason, one.fiches) for one in reasons]
        summary["reasons"] = metadata.markdown(table(("status", "reason", "fiches"), rows))
    if failed:
        summary["failed_fiches"] = metadata.markdown(table(("fiche", "reason", "error"), failed))
    if run.failed_fiches > len(failed):
        summary["failed_fiches_shown"] = metadata.text(
            f"the first {len(failed)} of {run.failed_fiches}"
        )
    if run.error_message:
        summary["error"] = metadata.text(run.error_message)
    return summary


ASSETS = ("sales_list", "fiche_details", "transcripts", "audit_outcomes")
Metadata = Mapping[str, dg.MetadataValue]
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
            day: whole
            for day, whole in days_covered(session, run.id).items()
            if _has_partition(day)
        }
        found = [(asset, day, _metadata(session, asset, day)) for day in days for asset in assets]
    is_whole_run = run.status in {RunStatus.COMPLETED, RunStatus.PARTIAL}
    for asset, day, values in found:
        if values is None:
            continue
        event = dg.AssetMaterialization if is_whole_run and days[day] else dg.AssetObservation
        of_run = {"automation_run": metadata.integer(run.id)}
        yield event(asset_key=asset, partition=day.isoformat(), metadata={**values, **of_run})
        yield from _evaluations(asset, day, _findings(services, asset, day))


def _has_partition(day: date) -> bool:
    return DAYS.has_partition_key(day.isoformat())


def _evaluations(
    asset: str, day: date, findings: Sequence[DayFinding]
) -> Iterator[dg.AssetCheckEvaluation]:
    for finding in findings:
        yield dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(asset),
            check_name=finding.check,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.ERROR if finding.grave else dg.AssetCheckSeverity.WARN,
            description=finding.message,
            partition=day.isoformat(),
        )


def _metadata(session: Session, asset: str, day: date) -> Metadata | None:
    """None for a sales list that was never fetched: only the details of its fiches contain the
    day."""
    match asset:
        case "sales_list":
            listed = sales_day(session, day)
            return None if listed is None else sales_day_metadata(listed)
        case "fiche_details":
            return coverage_metadata(coverage_of(session, day), {})
        case "transcripts":
            return transcripts.day_metadata(transcripts_of_day(session, day))
        case "audit_outcomes":
            return audits.day_metadata(audits_of_day(session, day))
        case _:
            raise KeyError(asset)


def _findings(services: Services, asset: str, day: date) -> Sequence[DayFinding]:
    match asset:
        case "sales_list":
            return check_sales_day(day, database=services.database)
        case "fiche_details":
            return check_details_day(day, database=services.database)
    with services.database.reading() as session:
        asked = sales_day(session, day) is not None
        if asset == "transcripts":
            return [judge_transcripts(transcripts_of_day(session, day), asked=asked)]
        return judge_audits(audits_of_day(session, day), asked=asked)
