"""Transcription in Dagster: the transcription run of a Dagster run, and its metadata."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.days import counts_table
from automation_pipeline.orchestration.job_registry import REQUEST_TAG
from automation_pipeline.orchestration.metadata import table
from automation_pipeline.storage.run_requests import filed_requests
from automation_pipeline.transcription.models import (
    DayTranscripts,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionSummary,
    why_incomplete,
)
from automation_pipeline.transcription.queries.runs import failed_recordings, list_summaries
from automation_pipeline.transcription.runs import fail_unplanned

OP = "transcribe"


def run_id_of(run: dg.DagsterRun) -> str:
    """The id that the request returned. Retries of a Dagster run work on the same transcription
    run."""
    return _config_of(run).get("run_id") or run.root_run_id or run.run_id


def fail_transcription_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Record that a Dagster run failed before it planned its transcription run. A planned run stays
    open: other processes may work on it, and the sweep ends it if none does."""
    config, key = _config_of(run), run.tags.get(REQUEST_TAG)
    request = TranscriptionRunRequest(
        run_id_of(run),
        str(config["fiche_id"]),
        TranscriptionPriority(config.get("priority", "normal")),
        run.run_id,
    )
    with services.database.transaction() as session:
        recorded = bool(list_summaries(session, [request.run_id]))
        never_taken = key is not None and any(
            one.state == "waiting" for one in filed_requests(session, [key])
        )
        if recorded or never_taken:
            fail_unplanned(request, reason, session)


def _config_of(run: dg.DagsterRun) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", run.run_config)["ops"][OP]["config"]


def run_result(status: TranscriptionSummary, services: Services) -> metadata.Metadata:
    """The metadata of an ended run. Raises dg.Failure with the same metadata if a recording could
    not be transcribed."""
    with services.database.reading() as session:
        failed = failed_recordings(session, status.run_id)
    shown, fault = run_metadata(status, failed), why_incomplete(status, failed)
    if fault is not None:
        raise dg.Failure(fault, metadata=shown, allow_retries=False)
    return shown


def run_metadata(
    status: TranscriptionSummary, failed: Sequence[tuple[str, str]] = ()
) -> dict[str, dg.MetadataValue]:
    return {
        "run": metadata.text(status.run_id),
        "status": metadata.text(status.status),
        "recordings": metadata.integer(status.total),
        "transcribed": metadata.integer(status.transcribed),
        "new": metadata.integer(status.new),
        "failed": metadata.integer(status.failed),
        **(
            {"failed_recordings": metadata.markdown(table(("recording", "reason"), failed))}
            if failed
            else {}
        ),
        **({"error": metadata.text(status.error)} if status.error else {}),
    }


def day_metadata(day: DayTranscripts) -> dict[str, dg.MetadataValue]:
    return {
        "recordings": metadata.integer(day.recordings),
        "transcribed": metadata.integer(day.transcribed),
        "coverage": metadata.real(day.coverage),
        "minutes_of_audio": metadata.real(day.minutes),
        **(
            {"failures": metadata.markdown(counts_table("cause", day.failures))}
            if day.failures
            else {}
        ),
    }
