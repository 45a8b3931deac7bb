"""One run whole: how it stands, how far it is, why fiches did not succeed, who was told, and every outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic.alias_generators import to_camel
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.phases import PhaseLength
from automation_pipeline.automation.domain.run import FicheOutcome, OutcomeStatus, Run
from automation_pipeline.automation.domain.run_record import LogEntry, RunNotification
from automation_pipeline.automation.store.ledger import outcomes
from automation_pipeline.automation.store.phases import time_by_phase
from automation_pipeline.automation.store.progress import (
    Progress,
    logs_after,
    notifications_of,
    progress_of,
    reasons_of,
)
from automation_pipeline.automation.store.runs import as_run, get_run
from automation_pipeline.automation.tables import LogRow, NotificationRow, RunRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.storage.types import JsonObject


@dataclass(frozen=True)
class RunStory:
    run: Run
    progress: Progress
    phases: Sequence[PhaseLength]
    reasons: Mapping[str, Mapping[str, int]]
    notifications: Sequence[RunNotification]
    fiches: Sequence[FicheOutcome]


def run_story(session: Session, run_id: int) -> RunStory:
    return RunStory(
        run=get_run(session, run_id),
        progress=progress_of(session, run_id),
        phases=time_by_phase(session, run_id),
        reasons=reasons_of(session, run_id),
        notifications=[_notification(row) for row in notifications_of(session, run_id)],
        fiches=outcomes(session, run_id),
    )


def story_document(story: RunStory) -> dict[str, object]:
    return {
        **as_document(story.run),
        "progress": progress_document(story.progress),
        "phases": [asdict(length) for length in story.phases],
        "reasons": story.reasons,
        "notifications": [as_document(one) for one in story.notifications],
        "fiches": [as_document(fiche) for fiche in story.fiches],
    }


def run_detail(session: Session, run_id: int, *, first_logs: int) -> dict[str, object]:
    """The run as the HTTP API shows it: its outcomes are pages of their own."""
    row = session.get(RunRow, run_id)
    if row is None:
        raise NotFoundError(f"Run {run_id} not found")
    return {
        **as_document(as_run(row)),
        "errorDetails": _without_stack(row.error_details),
        "configSnapshot": row.config_snapshot,
        "resultSummary": row.result_summary or result_summary(as_run(row), outcomes(session, run_id)),
        "progress": progress_document(progress_of(session, run_id)),
        "phases": [asdict(length) for length in time_by_phase(session, run_id)],
        "reasons": reasons_of(session, run_id),
        "notifications": [as_document(_notification(row)) for row in notifications_of(session, run_id)],
        "logs": [log_document(one) for one in logs_after(session, run_id, 0, "debug", limit=first_logs)],
    }


def result_summary(run: Run, fiches: Sequence[FicheOutcome]) -> dict[str, object]:
    """The outcomes of an ended or working run, as the seed's API shows them."""
    of_status = {status: [one for one in fiches if one.status is status] for status in OutcomeStatus}
    return {
        "successful": [one.fiche_id for one in of_status[OutcomeStatus.SUCCESSFUL]],
        "failed": [{"ficheId": one.fiche_id, "error": one.error} for one in of_status[OutcomeStatus.FAILED]],
        "ignored": [
            {
                "ficheId": one.fiche_id,
                "reason": one.ignore_reason,
                **({} if one.recordings_count is None else {"recordingsCount": one.recordings_count}),
            }
            for one in of_status[OutcomeStatus.IGNORED]
        ],
        "transcriptions": run.transcriptions_run,
        "audits": run.audits_run,
    }


def _without_stack(details: JsonObject | None) -> JsonObject | None:
    """What a bug leaves behind is for those who read the database."""
    return None if details is None else {name: value for name, value in details.items() if name != "stack"}


def log_entry(row: LogRow) -> LogEntry:
    return LogEntry(
        id=row.id, timestamp=row.timestamp, level=row.level, message=row.message, metadata=dict(row.details)
    )


def log_document(row: LogRow) -> dict[str, object]:
    return as_document(log_entry(row))


def progress_document(progress: Progress) -> dict[str, object]:
    return {to_camel(name): count for name, count in asdict(progress).items()}


def _notification(row: NotificationRow) -> RunNotification:
    return RunNotification(
        channel=row.channel,
        target=row.target,
        status=row.status,
        attempts=row.attempts,
        status_code=row.status_code,
        last_error=row.last_error,
        sent_at=row.sent_at,
    )
