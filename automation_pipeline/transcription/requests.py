"""Transcription requests: file a run request per fiche, with a run id that is known at once."""

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
    """File the requests and return one outcome per distinct fiche.

    A `batch` requests a fiche once per day, unless the earlier request left it incomplete. If a run
    works on the fiche already, the request joins it.
    """
    now, unique_ids = clock.now(), list(dict.fromkeys(fiche_ids))
    with database.transaction() as session:
        history = (
            request_histories(session, unique_ids, now.date())
            if batch
            else dict.fromkeys(unique_ids, RequestHistory())
        )
        live = live_runs(session, unique_ids)
        outcomes: list[RequestedTranscription] = []
        requests: list[NewRunRequest] = []
        for fiche_id in unique_ids:
            key = (
                batch_key(fiche_id, now.date(), history[fiche_id])
                if batch
                else single_key(fiche_id, now)
            )
            if key is None:
                outcomes.append(RequestedTranscription(fiche_id, live.get(fiche_id), None))
                continue
            # A live run may end before Dagster starts this one, so the request has its own run id,
            # and joins the live run if it can.
            run_id = str(uuid.uuid4())
            config = {"fiche_id": fiche_id, "priority": priority, "run_id": run_id}
            requests.append(
                NewRunRequest(key, TRANSCRIPTION_JOB, config, _tags(fiche_id, run_id, priority))
            )
            outcomes.append(RequestedTranscription(fiche_id, live.get(fiche_id, run_id), key))
        file_requests(session, requests, now)
    return outcomes


def _tags(fiche_id: str, run_id: str, priority: TranscriptionPriority) -> dict[str, str]:
    """Dagster also starts urgent runs first."""
    return {
        "automation/fiche_id": fiche_id,
        "automation/trace_id": run_id,
        "dagster/priority": DAGSTER_PRIORITY[priority],
    }
