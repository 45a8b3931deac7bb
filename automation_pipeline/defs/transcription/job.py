"""The job `transcribe_fiche`: begin a run for the fiche, or join the one under way, and work until
it is over."""

from typing import Literal

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import STEP_RETRIES, verdicts
from automation_pipeline.orchestration.requests import recorded_refusal, take_request
from automation_pipeline.orchestration.resource import ServicesResource


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
    from automation_pipeline.transcription.models import TranscriptionPriority
    from automation_pipeline.transcription.runs import TranscriptionRunRequest

    our, last_try = services.get(), context.retry_number >= STEP_RETRIES
    wish = TranscriptionRunRequest(
        run_id_of(context.run),
        config.fiche_id,
        TranscriptionPriority(config.priority),
        context.run_id,
    )
    with verdicts(), recorded_refusal(context, our, last_try=last_try):
        take_request(context, our)
        work = transcribe_fiches(
            [wish],
            database=our.database,
            source=lambda: our.crm,
            provider=lambda: our.speech,
            clock=our.clock,
            owner=f"{worker_name()}/{context.run_id}",
            gives_up=last_try,
        )
        [standing] = our.run(work)
    context.add_output_metadata(judged(standing, our))


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
