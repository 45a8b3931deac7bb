"""What an automation run made of its days, told as materialisations of the assets that would have made the same."""

from collections.abc import Mapping, Sequence
from datetime import date

import dagster as dg

from automation_pipeline.audits.store.days import audits_of
from automation_pipeline.automation.domain.run import Run
from automation_pipeline.automation.store.run_report import days_touched
from automation_pipeline.automation.store.schedules import schedule_of_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.store.freshness import coverage_of
from automation_pipeline.fiches.store.sales import sales_day
from automation_pipeline.orchestration import audits, transcripts
from automation_pipeline.orchestration.days import DAYS, coverage_metadata, sales_day_metadata
from automation_pipeline.storage.database import Session
from automation_pipeline.transcription.store.days import transcripts_of

ASSETS = ("sales_list", "fiche_details", "transcripts", "audit_outcomes")
Metadata = Mapping[str, dg.MetadataValue]


def ran_over(services: Services, run: Run) -> Sequence[str]:
    """The assets that the run did the work of."""
    with services.database.reading() as session:
        schedule = schedule_of_run(session, run.schedule_id)
    wanted = {"transcripts": schedule.run_transcription, "audit_outcomes": schedule.run_audits}
    return [asset for asset in ASSETS if wanted.get(asset, True)]


def run_materialisations(
    services: Services, run_id: int, assets: Sequence[str] = ASSETS
) -> list[dg.AssetMaterialization]:
    """Of those `assets` that the run worked on, for each day that has a partition, as the day stands now."""
    with services.database.reading() as session:
        days = [day for day in days_touched(session, run_id) if DAYS.has_partition_key(day.isoformat())]
        told = [(asset, day, _metadata(session, asset, day)) for day in days for asset in assets]
    return [materialised(asset, day, metadata) for asset, day, metadata in told if metadata is not None]


def materialised(asset: str, day: date, metadata: Metadata) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(asset_key=asset, partition=day.isoformat(), metadata=metadata)


def _metadata(session: Session, asset: str, day: date) -> Metadata | None:
    """None for a list that nobody has asked for: its day is known from its fiches' details alone."""
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
