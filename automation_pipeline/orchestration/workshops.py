"""With what a batch of a run is worked on, as this process's settings and services say."""

from collections.abc import Sequence

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.audit import Wish as AuditWish
from automation_pipeline.audits.stages.audit_fiche import audit_fiche
from automation_pipeline.automation.ports import WorkKnobs, Workshop
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration.listening import listener
from automation_pipeline.transcription.stages.begin_transcription import Wish as TranscriptionWish
from automation_pipeline.transcription.stages.transcribe_fiches import transcribe_fiches


def workshop(services: Services, owner: str) -> Workshop:
    settings, listen = services.settings, listener(services, owner)
    knobs = WorkKnobs(
        transcription_seconds=settings.automation_transcription_max_wait_ms / 1000,
        audit_seconds=settings.automation_audit_max_wait_ms / 1000,
        longest_pause_seconds=settings.automation_transcription_poll_interval_seconds,
        audits_at_once=settings.audit_run_concurrency,
    )

    async def transcribe(wishes: Sequence[TranscriptionWish]) -> object:
        return await transcribe_fiches(
            wishes,
            database=services.database,
            source=lambda: services.crm,
            provider=lambda: services.speech,
            clock=services.clock,
            owner=owner,
        )

    async def audit(wish: AuditWish) -> Standing:
        return await audit_fiche(
            wish,
            database=services.database,
            source=services.crm,
            listen=listen,
            judge=services.judge,
            clock=services.clock,
        )

    return Workshop(services.database, services.clock, knobs, transcribe, audit)
