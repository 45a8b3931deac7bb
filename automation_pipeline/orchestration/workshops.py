"""With what a batch of a run is worked on, as this process's settings and services say."""

from collections.abc import Sequence
from functools import cache

from automation_pipeline.audits.domain.audit import Standing as AuditStanding
from automation_pipeline.audits.domain.audit import Wish as AuditWish
from automation_pipeline.audits.stages.audit_fiche import audit_fiche
from automation_pipeline.automation.ports import WorkKnobs, Workshop
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.orchestration.knobs import crm_of_run
from automation_pipeline.orchestration.listening import listener
from automation_pipeline.transcription.domain.run import Standing
from automation_pipeline.transcription.stages.begin_transcription import Wish as TranscriptionWish
from automation_pipeline.transcription.stages.transcribe_fiches import begin_transcriptions, work_on_runs


def workshop(services: Services, owner: str, run_id: int) -> Workshop:
    """Of a run: its schedule may have a key of its own for the CRM."""
    settings, listen = services.settings, listener(services, owner)
    crm = cache(lambda: crm_of_run(services, run_id))
    knobs = WorkKnobs(
        transcription_seconds=settings.automation_transcription_max_wait_ms / 1000,
        audit_seconds=settings.automation_audit_max_wait_ms / 1000,
        longest_pause_seconds=settings.automation_transcription_poll_interval_seconds,
        audits_at_once=settings.audit_run_concurrency,
        audit_poll_seconds=settings.automation_audit_poll_interval_seconds,
    )

    async def begin(wishes: Sequence[TranscriptionWish]) -> Sequence[Standing | AutomationError]:
        return await begin_transcriptions(wishes, database=services.database, source=crm, clock=services.clock)

    async def transcribe(run_ids: Sequence[str], own: Sequence[str]) -> object:
        return await work_on_runs(
            run_ids, own=own, database=services.database, provider=lambda: services.speech, owner=owner
        )

    async def audit(wish: AuditWish) -> AuditStanding:
        return await audit_fiche(
            wish,
            database=services.database,
            source=crm(),
            listen=listen,
            judge=services.judge,
            clock=services.clock,
        )

    return Workshop(services.database, services.clock, knobs, begin, transcribe, audit)
