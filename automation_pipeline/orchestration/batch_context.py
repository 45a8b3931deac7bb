"""The services and options for the ops of an automation run."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from automation_pipeline.audits.audits import audit_fiche
from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.automation.transcribing import BatchContext, WorkOptions
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.orchestration.executor import processes_of
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionSummary,
)
from automation_pipeline.transcription.runs import (
    begin_transcriptions,
    transcribe_fiches,
    work_on_runs,
)

if TYPE_CHECKING:
    from automation_pipeline.automation.fetching import FetchOptions
    from automation_pipeline.automation.selection import SelectionOptions
    from automation_pipeline.bootstrap import Services
    from automation_pipeline.fiches.models.fiches import FicheSource


def crm_of_run(services: "Services", run_id: int) -> "FicheSource":
    """The CRM client with the key of the run's schedule, if it has one."""
    from automation_pipeline.automation.queries.runs import external_key_of  # noqa: PLC0415  only a few steps need it

    with services.database.reading() as session:
        key = external_key_of(session, run_id)
    return services.crm_with(key)


def selection_options(services: "Services") -> "SelectionOptions":
    from automation_pipeline.automation.selection import SelectionOptions  # noqa: PLC0415  only one step needs it

    settings = services.settings
    return SelectionOptions(
        processes=processes_of(settings),
        cooldown=timedelta(milliseconds=settings.automation_revalidation_cooldown_ms),
        recordings_per_minute=settings.transcription_elevenlabs_rate_limit_per_minute,
    )


def fetch_options(services: "Services") -> "FetchOptions":
    from automation_pipeline.automation.fetching import FetchOptions  # noqa: PLC0415  only one step needs it

    settings = services.settings
    seconds = settings.automation_fiche_details_max_wait_ms / 1000
    return FetchOptions(
        budget_seconds=seconds,
        most_recordings=settings.automation_max_recordings_per_fiche,
        poll_seconds=settings.automation_fiche_details_poll_interval_seconds,
    )


def transcript_reader(services: Services, owner: str) -> Callable[[str], Awaitable[object]]:
    """A function that transcribes a fiche's missing recordings. The provider is created only if a
    recording is missing."""

    async def ensure_transcribed(fiche_id: str) -> object:
        request = TranscriptionRunRequest(str(uuid.uuid4()), fiche_id, TranscriptionPriority.HIGH)
        return await transcribe_fiches(
            [request],
            database=services.database,
            source=lambda: services.crm,
            provider=lambda: services.speech,
            clock=services.clock,
            owner=owner,
        )

    return ensure_transcribed


def batch_context(services: Services, owner: str, run_id: int) -> BatchContext:
    """The context of one run, because its schedule may have its own CRM key."""
    settings, ensure_transcribed = services.settings, transcript_reader(services, owner)
    crm = cache(lambda: crm_of_run(services, run_id))
    fetching = settings.automation_fiche_details_max_wait_ms / 1000
    transcribing = fetching + settings.automation_transcription_max_wait_ms / 1000
    options = WorkOptions(
        transcription_seconds=transcribing,
        audit_seconds=transcribing + settings.automation_audit_max_wait_ms / 1000,
        transcribes_ahead=processes_of(settings) == 1,
        longest_pause_seconds=settings.automation_transcription_poll_interval_seconds,
        audits_at_once=settings.audit_run_concurrency,
        audit_poll_seconds=settings.automation_audit_poll_interval_seconds,
    )

    async def begin(
        requests: Sequence[TranscriptionRunRequest],
    ) -> Sequence[TranscriptionSummary | AutomationError]:
        return await begin_transcriptions(
            requests, database=services.database, source=crm, clock=services.clock
        )

    async def transcribe(
        run_ids: Sequence[str], own: Sequence[str], stop: asyncio.Event | None = None
    ) -> object:
        return await work_on_runs(
            run_ids,
            own=own,
            stop=stop,
            database=services.database,
            provider=lambda: services.speech,
            owner=owner,
        )

    async def audit(request: FicheAuditRequest) -> AuditSummary:
        return await audit_fiche(
            request,
            database=services.database,
            source=crm(),
            ensure_transcribed=ensure_transcribed,
            judge=services.judge,
            clock=services.clock,
        )

    return BatchContext(services.database, services.clock, options, begin, transcribe, audit)
