"""Transcripts: the job, the asset and the sweep."""

from typing import Literal

import dagster as dg
from pydantic import Field

from automation_pipeline.defs.fiches import fiche_details
from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of
from automation_pipeline.orchestration.job_registry import recorded_refusal, take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    STEP_RETRIES,
    ServicesResource,
    StrictConfig,
    every,
    verdicts,
)


class TranscribeFicheConfig(StrictConfig):
    """Which fiche, and how soon."""

    fiche_id: str = Field(description="The fiche's id in the CRM.")
    priority: Literal["high", "normal", "low"] = Field(
        default="normal",
        description="Among recordings that wait for the provider, high goes before normal before low.",
    )
    run_id: str | None = Field(
        default=None, description="The id that the run was promised; made up when left out."
    )


@dg.op(
    description="Fetches the fiche from the CRM, transcribes every recording that has no transcript yet, and records "
    "how the run ended. A retry joins its own run.",
)
def transcribe(
    context: dg.OpExecutionContext, config: TranscribeFicheConfig, services: ServicesResource
) -> None:
    from automation_pipeline.orchestration.heartbeat import worker_name
    from automation_pipeline.orchestration.transcripts import judged, run_id_of
    from automation_pipeline.transcription.fiches import transcribe_fiches
    from automation_pipeline.transcription.models import (
        TranscriptionPriority,
        TranscriptionRunRequest,
    )

    our, last_try = services.get(), context.retry_number >= STEP_RETRIES
    request = TranscriptionRunRequest(
        run_id_of(context.run),
        config.fiche_id,
        TranscriptionPriority(config.priority),
        context.run_id,
    )
    with verdicts(), recorded_refusal(context, our, last_try=last_try):
        take_request(context, our)
        work = transcribe_fiches(
            [request],
            database=our.database,
            source=lambda: our.crm,
            provider=lambda: our.speech,
            clock=our.clock,
            owner=f"{worker_name()}/{context.run_id}",
            gives_up=last_try,
        )
        [status] = our.run(work)
    context.add_output_metadata(judged(status, our))


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
    description="Transcribes the recordings of one fiche. Green: every recording that can be transcribed is, or there "
    "was nothing to do. Red: one could not be, the fiche is unknown, the provider refuses or a key is missing.",
)
def transcribe_fiche() -> None:
    transcribe()


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


@dg.multi_asset_check(specs=check_specs(transcripts))
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


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends transcription runs whose worker is lost.",
)
def sweep_transcription_runs(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.transcription.runs import sweep_transcriptions

    our = services.get()
    ended = sweep_transcriptions(our.settings.transcription_max_wait_seconds, database=our.database)
    return dg.SkipReason(
        f"Ended {', '.join(ended)}." if ended else "No transcription run is abandoned."
    )
