"""Requests to transcribe fiches: the ids of the runs are known at once, Dagster begins them."""

import uuid
from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.transcription.models import (
    RequestedTranscription,
    RequestHistory,
    TranscriptionPriority,
    batch_key,
    single_key,
)
from automation_pipeline.transcription.queries.requests import (
    TRANSCRIPTION_JOB,
    live_runs,
    request_histories,
)

DAGSTER_PRIORITY = {
    TranscriptionPriority.HIGH: "10",
    TranscriptionPriority.NORMAL: "0",
    TranscriptionPriority.LOW: "-10",
}


def request_transcriptions(
    fiche_ids: Sequence[str],
    *,
    priority: TranscriptionPriority,
    batch: bool,
    database: Database,
    clock: Clock,
) -> list[RequestedTranscription]:
    """One outcome a fiche, each fiche once. A `batch` does not ask twice a day for what is under
    way or complete; a fiche that a run works on already is joined, not worked on twice."""
    now, wanted = clock.now(), list(dict.fromkeys(fiche_ids))
    with database.transaction() as session:
        history = (
            request_histories(session, wanted, now.date())
            if batch
            else dict.fromkeys(wanted, RequestHistory())
        )
        live = live_runs(session, wanted)
        outcomes: list[RequestedTranscription] = []
        requests: list[NewRunRequest] = []
        for fiche_id in wanted:
            key = (
                batch_key(fiche_id, now.date(), history[fiche_id])
                if batch
                else single_key(fiche_id, now)
            )
            if key is None:
                outcomes.append(RequestedTranscription(fiche_id, live.get(fiche_id), None))
                continue
            # What is live now may be over before Dagster begins: the wish has an id of its own, and
            # joins if it can.
            run_id = str(uuid.uuid4())
            config = {"fiche_id": fiche_id, "priority": priority, "run_id": run_id}
            requests.append(
                NewRunRequest(key, TRANSCRIPTION_JOB, config, _tags(fiche_id, run_id, priority))
            )
            outcomes.append(RequestedTranscription(fiche_id, live.get(fiche_id, run_id), key))
        file_requests(session, requests, now)
    return outcomes


def _tags(fiche_id: str, run_id: str, priority: TranscriptionPriority) -> dict[str, str]:
    """Urgent runs are also started first."""
    return {
        "automation/fiche_id": fiche_id,
        "automation/trace_id": run_id,
        "dagster/priority": DAGSTER_PRIORITY[priority],
    }
