"""Transcription requests: file a run request per fiche, with a run id that is known at once, and find
what became of it."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Annotated, cast

from pydantic import BeforeValidator, ConfigDict
from sqlalchemy import select

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.fiches.models.fiches import RequestedFicheIds
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import (
    FiledRequest,
    NewRunRequest,
    RunRequestRow,
    file_requests,
    refusals,
    taken,
)
from automation_pipeline.storage.statements import among
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionStatus,
    TranscriptionSummary,
    why_not_all,
)
from automation_pipeline.transcription.queries.runs import (
    failed_recordings,
    last_runs_of,
    list_summaries,
    live_runs,
)

TRANSCRIPTION_JOB = "transcribe_fiche"
DAGSTER_PRIORITY = {
    TranscriptionPriority.HIGH: "10",
    TranscriptionPriority.NORMAL: "0",
    TranscriptionPriority.LOW: "-10",
}


def parse_priority(given: object) -> TranscriptionPriority:
    """Any unknown value is the normal priority."""
    return next(
        (priority for priority in TranscriptionPriority if priority == given),
        TranscriptionPriority.NORMAL,
    )


class TranscriptionBatchInput(JsonModel):
    model_config = ConfigDict(alias_generator=None)

    fiche_ids: RequestedFicheIds
    priority: Annotated[
        TranscriptionPriority, BeforeValidator(parse_priority, json_schema_input_type=str)
    ] = TranscriptionPriority.NORMAL


def parse_batch(given: Mapping[str, object]) -> TranscriptionBatchInput:
    """Raises InvalidInputError with one error per invalid id."""
    return parse(TranscriptionBatchInput, given, "Invalid request - fiche_ids array required")


@dataclass(frozen=True)
class RequestedTranscription:
    """The outcome of a request: the run that works or will work on the fiche, and the key of the run
    request; None if no new one was filed."""

    fiche_id: str
    run_id: str | None
    key: str | None


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
        live = live_runs(session, unique_ids)
        if batch:
            keys = _batch_keys(session, unique_ids, now.date(), live)
        else:  # each request for a single fiche has its own key
            moment = round(now.timestamp() * 1000)
            keys = {fiche_id: f"transcribe-{fiche_id}-{moment}" for fiche_id in unique_ids}
        outcomes: list[RequestedTranscription] = []
        requests: list[NewRunRequest] = []
        for fiche_id in unique_ids:
            key = keys.get(fiche_id)
            if key is None:
                outcomes.append(RequestedTranscription(fiche_id, live.get(fiche_id), None))
                continue
            # A live run may end before Dagster starts this one, so the request has its own run id,
            # and joins the live run if it can.
            run_id = str(uuid.uuid4())
            config = {"fiche_id": fiche_id, "priority": priority, "run_id": run_id}
            tags = {
                "automation/fiche_id": fiche_id,
                "automation/trace_id": run_id,
                "dagster/priority": DAGSTER_PRIORITY[priority],
            }
            requests.append(NewRunRequest(key, TRANSCRIPTION_JOB, config, tags))
            outcomes.append(RequestedTranscription(fiche_id, live.get(fiche_id, run_id), key))
        file_requests(session, requests, now)
    return outcomes


def _batch_keys(
    session: Session, fiche_ids: Sequence[str], day: date, live: Mapping[str, str]
) -> dict[str, str]:
    """The keys of a batch's requests, with a constant number of statements. A fiche has none if its
    request of the day is active, or left no recording without a transcript."""
    marker = f"-{day.isoformat()}"
    filed = session.execute(
        select(RunRequestRow.request_key, RunRequestRow.state).where(
            RunRequestRow.job == TRANSCRIPTION_JOB, RunRequestRow.request_key.contains(marker)
        )
    ).tuples()
    states = [(key.removeprefix("transcribe-").partition(marker)[0], state) for key, state in filed]
    earlier = Counter(fiche_id for fiche_id, _ in states)
    active = {fiche_id for fiche_id, state in states if state == "waiting"} | live.keys()
    is_requested = among(session, FicheCacheRow.fiche_id, fiche_ids)
    mirrored = set(session.scalars(select(FicheCacheRow.fiche_id).where(is_requested)))
    incomplete = session.scalars(
        select(FicheCacheRow.fiche_id)
        .join(CallRecordingRow, CallRecordingRow.fiche_cache_id == FicheCacheRow.id)
        .where(
            is_requested,
            CallRecordingRow.vanished_at.is_(None),
            CallRecordingRow.has_transcription.is_(False),
        )
        .distinct()
    )
    complete = mirrored.difference(incomplete)
    first = {one: f"transcribe-{one}{marker}" for one in fiche_ids}
    return {
        one: f"{first[one]}-retry-{earlier[one]}" if earlier[one] else first[one]
        for one in fiche_ids
        if not earlier[one] or one not in active | complete
    }


def request_outcomes(
    session: Session, requested: Sequence[RequestedTranscription], requested_at: datetime
) -> dict[str, TranscriptionSummary | str]:
    """Return, by fiche, the runs that have started and the reasons of refused requests.

    A run is the request's own or, once Dagster has taken the request, the one that it joined. An
    ended run that left recordings without a transcript has the reason as its error.
    """
    keys = [request.key for request in requested if request.key]
    refused, started = refusals(session, keys), taken(session, keys)
    run_ids = [cast("str", request.run_id) for request in requested]
    own = {run.fiche_id: run for run in list_summaries(session, run_ids)}
    joining = [
        request.fiche_id
        for request in requested
        if request.key in started and request.fiche_id not in own
    ]
    joined = last_runs_of(session, joining, requested_at)
    reasons = {
        request.fiche_id: refused[request.key] for request in requested if request.key in refused
    }
    runs = {**joined, **own}
    ended = [
        one for one in runs.values() if one.failed and one.status is not TranscriptionStatus.RUNNING
    ]
    failed = failed_recordings(session, [one.run_id for one in ended])
    explained = {
        one.fiche_id: replace(one, error=why_not_all(one, failed[one.run_id])) for one in ended
    }
    return {**reasons, **runs, **explained}


def requested_transcriptions(
    session: Session, filed: Sequence[FiledRequest]
) -> list[RequestedTranscription]:
    """Restore what `request_transcriptions` returned. A fiche with a live run joins it."""
    fiches = {request.key: request.tags["automation/fiche_id"] for request in filed}
    live = live_runs(session, list(fiches.values()))
    return [
        RequestedTranscription(
            fiches[request.key],
            live.get(fiches[request.key], cast("str", request.config["run_id"])),
            request.key,
        )
        for request in filed
    ]
