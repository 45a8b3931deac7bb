"""What an automation run did to the day assets, as events of those assets.

A run that covers the whole sales list of a day materialises the day; a run over part of it observes it, so that the
day is not painted as done. In both cases the asset's checks are evaluated.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import dagster as dg

from automation_pipeline.audits.domain.day import judge_audits
from automation_pipeline.audits.store.days import audits_of
from automation_pipeline.automation.domain.run import Run, RunStatus
from automation_pipeline.automation.store.run_report import days_covered
from automation_pipeline.automation.store.schedules import schedule_of_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.domain.days import Finding
from automation_pipeline.fiches.stages.judge_details_day import judge_details_day
from automation_pipeline.fiches.stages.judge_sales_day import judge_sales_day
from automation_pipeline.fiches.store.freshness import coverage_of
from automation_pipeline.fiches.store.sales import sales_day
from automation_pipeline.orchestration import audits, metadata, transcripts
from automation_pipeline.orchestration.days import DAYS, coverage_metadata, sales_day_metadata
from automation_pipeline.storage.database import Session
from automation_pipeline.transcription.domain.day import judge_transcripts
from automation_pipeline.transcription.store.days import transcripts_of

ASSETS = ("sales_list", "fiche_details", "transcripts", "audit_outcomes")
Metadata = Mapping[str, dg.MetadataValue]
AssetEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


def assets_of_run(services: Services, run: Run) -> Sequence[str]:
    """The assets that the run worked on."""
    with services.database.reading() as session:
        schedule = schedule_of_run(session, run.schedule_id)
    wanted = {"transcripts": schedule.run_transcription, "audit_outcomes": schedule.run_audits}
    return [asset for asset in ASSETS if wanted.get(asset, True)]


def asset_events(services: Services, run: Run, assets: Sequence[str] = ASSETS) -> Iterator[AssetEvent]:
    """For each day with a partition and each of the assets: a materialization or an observation, and the checks."""
    with services.database.reading() as session:
        days = {day: whole for day, whole in days_covered(session, run.id).items() if _has_partition(day)}
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


def _evaluations(asset: str, day: date, findings: Sequence[Finding]) -> Iterator[dg.AssetCheckEvaluation]:
    for finding in findings:
        yield dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(asset),
            check_name=finding.check,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.ERROR if finding.grave else dg.AssetCheckSeverity.WARN,
            description=finding.says,
            partition=day.isoformat(),
        )


def _metadata(session: Session, asset: str, day: date) -> Metadata | None:
    """None for a sales list that was never asked for: its day is known from the details of its fiches alone."""
    match asset:
        case "sales_list":
            listed = sales_day(session, day)
            return None if listed is None else sales_day_metadata(listed)
        case "fiche_details":
            return coverage_metadata(coverage_of(session, day), {})
        case "transcripts":
            return transcripts.day_metadata(transcripts_of(session, day))
        case "audit_outcomes":
            return audits.day_metadata(audits_of(session, day))
        case _:
            raise KeyError(asset)


def _findings(services: Services, asset: str, day: date) -> Sequence[Finding]:
    match asset:
        case "sales_list":
            return judge_sales_day(day, database=services.database)
        case "fiche_details":
            return judge_details_day(day, database=services.database)
    with services.database.reading() as session:
        asked = sales_day(session, day) is not None
        if asset == "transcripts":
            return [judge_transcripts(transcripts_of(session, day), asked=asked)]
        return judge_audits(audits_of(session, day), asked=asked)
