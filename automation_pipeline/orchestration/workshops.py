"""What the steps of a run work with, as this process's settings and services say."""

from collections.abc import Sequence
from datetime import timedelta

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.audit import Wish as AuditWish
from automation_pipeline.audits.stages.audit_fiche import audit_fiche
from automation_pipeline.automation.ports import WorkKnobs, Workshop
from automation_pipeline.automation.stages.fetch_batch import FetchKnobs
from automation_pipeline.automation.stages.select_fiches import SelectionKnobs
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration.executor import processes_of
from automation_pipeline.orchestration.listening import listener
from automation_pipeline.transcription.stages.begin_transcription import Wish as TranscriptionWish
from automation_pipeline.transcription.stages.transcribe_fiches import transcribe_fiches


def selection_knobs(services: Services) -> SelectionKnobs:
    cooldown = timedelta(milliseconds=services.settings.automation_revalidation_cooldown_ms)
    return SelectionKnobs(processes=processes_of(services.settings), cooldown=cooldown)


def fetch_knobs(services: Services) -> FetchKnobs:
    settings = services.settings
    seconds = settings.automation_fiche_details_max_wait_ms / 1000
    return FetchKnobs(budget_seconds=seconds, most_recordings=settings.automation_max_recordings_per_fiche)


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
            source=services.crm,
            provider=services.speech,
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
