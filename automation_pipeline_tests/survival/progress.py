"""The progress of a run by the database, and the calls of the providers by the simulator's
ledger."""

from collections import Counter
from collections.abc import Sequence

import httpx
import psutil
from sqlalchemy import or_, select

from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.automation.tables import FicheResultRow, HeartbeatRow, RunRow
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import RUN_WORKER, StepHeartbeatRow
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES

ROUTES = ("crm.details", "speech.transcribe", "llm.complete")


def finished(database: Database, run_id: int, fiche_ids: Sequence[str]) -> set[str]:
    """Stored work that must not be repeated, named as in `provider_calls`."""
    with database.reading() as session:
        fetched = session.scalars(
            select(FicheResultRow.fiche_id).where(
                FicheResultRow.run_id == run_id,
                or_(FicheResultRow.status != "pending", FicheResultRow.stage == "fetched"),
            )
        )
        details = [f"crm.details {fiche_id}" for fiche_id in fetched]
        received = session.scalars(
            select(CallRecordingRow.call_id)
            .join(FicheCacheRow, FicheCacheRow.id == CallRecordingRow.fiche_cache_id)
            .where(FicheCacheRow.fiche_id.in_(fiche_ids), CallRecordingRow.has_transcription)
        )
        transcripts = [f"speech.transcribe {call_id}" for call_id in received]
        steps = session.execute(
            select(FicheCacheRow.fiche_id, StepResultRow.step_position)
            .join(AuditRow, AuditRow.fiche_cache_id == FicheCacheRow.id)
            .join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
            .where(FicheCacheRow.fiche_id.in_(fiche_ids), StepResultRow.error.is_(None))
        ).tuples()
        judged = [f"llm.complete {fiche_id}/{position}" for fiche_id, position in steps]
    return {*details, *transcripts, *judged}


def provider_calls(provider: str) -> Counter[str]:
    """Calls of the providers, answered or not, by route and item."""
    routes = (
        httpx.get(f"{provider}/_sim/calls", verify=NO_CERTIFICATES)
        .raise_for_status()
        .json()["routes"]
    )
    return Counter(
        {f"{route} {item}": n for route in ROUTES for item, n in routes[route]["items"].items()}
    )


def has_ended(database: Database, run_id: int) -> bool:
    with database.reading() as session:
        return (
            session.scalars(select(RunRow.completed_at).where(RunRow.id == run_id)).one()
            is not None
        )


def process_at_work(database: Database, run_id: int) -> psutil.Process | None:
    """The process that sends the heartbeats of the run."""
    with database.reading() as session:
        worker = session.scalars(
            select(HeartbeatRow.worker).where(HeartbeatRow.run_id == run_id)
        ).one_or_none()
    return _alive(worker)


def process_that_waits(database: Database, run_id: int) -> psutil.Process | None:
    """The process that waits for the steps of a run that other processes execute."""
    mine = select(RunRow.dagster_run_id).where(RunRow.id == run_id).scalar_subquery()
    with database.reading() as session:
        worker = session.scalars(
            select(StepHeartbeatRow.worker).where(
                StepHeartbeatRow.dagster_run_id == mine, StepHeartbeatRow.step_key == RUN_WORKER
            )
        ).one_or_none()
    return _alive(worker)


def _alive(worker: str | None) -> psutil.Process | None:
    pid = int((worker or ":0").rpartition(":")[2])
    try:
        process = psutil.Process(pid) if pid else None
        return process if process and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def run_worker_of(step: psutil.Process) -> psutil.Process:
    """The oldest ancestor of this installation that is no code server: it executes the Dagster
    run."""
    oldest, home = step, home_of(step)
    for parent in step.parents():
        if home_of(parent) != home or "grpc" in parent.cmdline():
            break
        oldest = parent
    return oldest


def home_of(process: psutil.Process) -> str | None:
    """The DAGSTER_HOME of the process, if it is readable."""
    try:
        return process.environ().get("DAGSTER_HOME")
    except psutil.Error:
        return None
