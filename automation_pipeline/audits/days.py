"""Audits of a day: audit the fiches sold on it by every automatic configuration."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from automation_pipeline.audits.audits import EnsureTranscribed, audit_fiche
from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.queries.configs import automatic_configs
from automation_pipeline.audits.queries.days import audits_of_day, missing_audits
from automation_pipeline.audits.rules.days import DayAudits, without_fiche_id
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, sentence_of
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database

TRIGGER = "asset"


@dataclass(frozen=True, kw_only=True)
class DayAuditRequest:
    """Audit a day with `width` concurrent audits. Repeating an `attempt` continues its audits; another
    attempt retries what failed."""

    day: date
    attempt: str
    width: int
    dagster_run_id: str | None = None


@dataclass(frozen=True)
class _FailedAttempt:
    """An audit that ended with an error."""

    fiche_id: str
    error: AutomationError


async def audit_day(
    work: DayAuditRequest,
    *,
    database: Database,
    source: FicheSource,
    ensure_transcribed: EnsureTranscribed,
    judge: Judge,
    clock: Clock,
) -> DayAudits:
    """Audit the day and return its counts, with the causes of this attempt's failures.

    The error of one audit does not affect the others. If every audit fails, the first error is
    raised.
    """
    ended: list[AuditSummary | _FailedAttempt] = []

    async def audit(request: FicheAuditRequest) -> AuditSummary | _FailedAttempt:
        try:
            return await audit_fiche(
                request,
                database=database,
                source=source,
                ensure_transcribed=ensure_transcribed,
                judge=judge,
                clock=clock,
            )
        except AutomationError as error:
            return _FailedAttempt(request.fiche_id, error)

    await process_concurrently(
        _missing_requests(work, database), audit, ended.extend, width=work.width
    )
    failed = [result for result in ended if isinstance(result, _FailedAttempt)]
    if failed and len(failed) == len(ended):
        raise failed[0].error
    with database.reading() as session:
        day = audits_of_day(session, work.day)
    causes = Counter(
        without_fiche_id(sentence_of(attempt.error), attempt.fiche_id) for attempt in failed
    )
    return replace(day, failures=Counter(day.failures) + causes)


def _missing_requests(work: DayAuditRequest, database: Database) -> Sequence[FicheAuditRequest]:
    with database.reading() as session:
        config_ids = [stored.id for stored in automatic_configs(session)]
        missing = missing_audits(session, work.day, config_ids)
    return [
        FicheAuditRequest(
            tracking_id=f"day-{work.day.isoformat()}-audit-{fiche_id}-{config_id}-{work.attempt}",
            fiche_id=fiche_id,
            audit_config_id=config_id,
            trigger_source=TRIGGER,
            dagster_run_id=work.dagster_run_id,
        )
        for fiche_id, config_id in missing
    ]
