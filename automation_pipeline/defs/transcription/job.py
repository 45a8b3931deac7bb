"""The job `transcribe_fiche`: begin a run for the fiche, or join the one under way, and work until it is over."""

from typing import Literal

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.orchestration.transcripts import standing_metadata
from automation_pipeline.transcription.domain.run import Priority
from automation_pipeline.transcription.stages.begin_transcription import Wish
from automation_pipeline.transcription.stages.transcribe_fiches import transcribe_fiches


class TranscribeFicheConfig(StrictConfig):
    """Which fiche, and how soon."""

    fiche_id: str = Field(description="The fiche's id in the CRM.")
    priority: Literal["high", "normal", "low"] = Field(
        default="normal", description="Among recordings that wait for the provider, high goes before normal before low."
    )
    run_id: str | None = Field(default=None, description="The id that the run was promised; made up when left out.")


@dg.op(retry_policy=CRASH_RETRIES)
def transcribe(context: dg.OpExecutionContext, config: TranscribeFicheConfig, services: ServicesResource) -> None:
    """Fetch the fiche anew, transcribe what it lacks, tell how it ended. A retry joins its own run."""
    our, root = services.get(), context.run.root_run_id or context.run_id
    wish = Wish(config.run_id or root, config.fiche_id, Priority(config.priority), context.run_id)
    with verdicts():
        provider = our.speech
        take_request(context, our)
        owner = f"{worker_name()}/{context.run_id}"
        work = transcribe_fiches(
            [wish], database=our.database, source=our.crm, provider=provider, clock=our.clock, owner=owner
        )
        [standing] = our.run(work)
    context.add_output_metadata(standing_metadata(standing))


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "3",
        "dagster/max_runtime": "18000",
    }
)
def transcribe_fiche() -> None:
    transcribe()
