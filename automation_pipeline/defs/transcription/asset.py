"""The asset `transcripts`: what was said in the calls of a day's fiches."""

import dagster as dg

from automation_pipeline.defs.fiches.assets import fiche_details
from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.transcription.models import COVERAGE_CHECK


@dg.asset(
    partitions_def=DAYS,
    group_name="speech",
    kinds={"http"},
    deps=[fiche_details],
    retry_policy=CRASH_RETRIES,
)
def transcripts(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """The transcripts of the day's recordings; only those that are missing are asked for, after
    everything urgent."""
    from automation_pipeline.orchestration.heartbeat import worker_name
    from automation_pipeline.orchestration.transcripts import day_metadata
    from automation_pipeline.transcription.fiches import transcribe_day

    our, owner = services.get(), f"{worker_name()}/{context.run.run_id}"
    with verdicts():
        work = transcribe_day(
            day_of(context),
            database=our.database,
            source=lambda: our.crm,
            provider=lambda: our.speech,
            clock=our.clock,
            owner=owner,
        )
        day = our.run(work)
    return dg.MaterializeResult(metadata=day_metadata(day))


@dg.multi_asset_check(specs=check_specs(transcripts, (COVERAGE_CHECK,)))
def transcripts_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> dg.AssetCheckResult:
    """Nearly every recording of the day has its transcript."""
    from automation_pipeline.fiches.queries.days import sales_day
    from automation_pipeline.transcription.models import judge_transcripts
    from automation_pipeline.transcription.queries.recordings import transcripts_of_day

    with services.get().database.reading() as session:
        day, listed = (
            transcripts_of_day(session, day_of(context)),
            sales_day(session, day_of(context)),
        )
    return check_result("transcripts", judge_transcripts(day, asked=listed is not None))
