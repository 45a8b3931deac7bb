"""Automation runs in Dagster: launch config, attempt, tags, and the services for their steps.

Every job loads this module, so functions import what only the steps of automation runs need."""
# ruff: noqa: PLC0415

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import dagster as dg

from automation_pipeline.automation.models.runs import RunAttempt, Trigger
from automation_pipeline.core.errors import AutomationError, InvalidInputError
from automation_pipeline.orchestration.executor import beating, processes_of
from automation_pipeline.orchestration.job_registry import LAUNCH_TAG
from automation_pipeline.orchestration.ops import dagster_errors

if TYPE_CHECKING:
    from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
    from automation_pipeline.automation.fetching import FetchOptions
    from automation_pipeline.automation.runs import RunLaunch
    from automation_pipeline.automation.selection import SelectionOptions
    from automation_pipeline.automation.transcribing import BatchContext
    from automation_pipeline.bootstrap import Services
    from automation_pipeline.fiches.models.fiches import FicheSource
    from automation_pipeline.transcription.models import (
        TranscriptionRunRequest,
        TranscriptionSummary,
    )

RUN_ID_TAG, ATTEMPT_TAG = "automation/run_id", "automation/attempt"
_BATCH = "batch_"

FROM_THE_FIRST_STEP = (
    'An automation run cannot continue from a failed step: its attempt is over. Choose "Re-execute all steps": '
    "completed work is not repeated."
)


def batch_key(batch: int) -> str:
    return f"{_BATCH}{batch}"


class Tickets(dg.IOManager):
    """Passes the ticket of the run's attempt between steps, alone or with a batch number. Steps of
    a superseded attempt get their own ticket, never that of a newer attempt, and the ledger refuses
    their writes."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """`open_run` has written the ticket to the tags."""
        is_ticket = isinstance(obj[0] if isinstance(obj, tuple) else obj, RunAttempt)
        if obj is not None and not is_ticket:
            raise dg.DagsterInvariantViolationError(
                f"{context.step_key} returns {type(obj).__name__}: steps return only tickets and store other data."
            )

    def load_input(self, context: dg.InputContext) -> RunAttempt | tuple[RunAttempt, int]:
        """Read the ticket from the tags of the Dagster run."""
        upstream = context.upstream_output
        if upstream is not None and upstream.run_id != context.step_context.run_id:
            raise dg.Failure(FROM_THE_FIRST_STEP, allow_retries=False)
        run = upstream and context.step_context.instance.get_run_by_id(upstream.run_id)
        if upstream is None or run is None or ATTEMPT_TAG not in run.tags:
            raise dg.DagsterInvariantViolationError(
                "No step of this run has opened an attempt: execute it from open_run."
            )
        ticket = RunAttempt(int(run.tags[RUN_ID_TAG]), int(run.tags[ATTEMPT_TAG]))
        if upstream.mapping_key is None:
            return ticket
        return ticket, int(upstream.mapping_key.removeprefix(_BATCH))


@contextmanager
def step_of_attempt(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: "Services"
) -> Generator[None]:
    """Send the run's heartbeat during a step, and convert errors as `dagster_errors` does. A step
    of a cancelled run ends without a failure, and `finalise_run` shows the outcome."""
    from automation_pipeline.automation.queries.runs import RunCancelledError

    with dagster_errors(), beating(ticket, services):
        try:
            yield
        except RunCancelledError as error:
            context.log.info(f"{error} This step stops.")


# The tag with the business outcome of a run, for filters in Dagster.
STATUS_TAG = "automation/status"


def parse_launch(
    config: Mapping[str, Any], dagster_run: dg.DagsterRun, worker: str, lost_after_seconds: float
) -> "RunLaunch":
    from automation_pipeline.automation.models.schedules import parse_selection
    from automation_pipeline.automation.runs import RunLaunch

    override, due_at = config["override_fiche_selection"], config["due_at"]
    return RunLaunch(
        schedule_id=config["schedule_id"],
        run_id=config["run_id"],
        due_at=None if due_at is None else _instant(due_at),
        override=None if override is None else parse_selection(override),
        dagster_run_id=dagster_run.run_id,
        dagster_root_run_id=dagster_run.root_run_id or dagster_run.run_id,
        worker=worker,
        is_next=int(dagster_run.tags.get(LAUNCH_TAG, "1")) > 1,
        is_repeat=dagster_run.parent_run_id is not None,
        lost_after_seconds=lost_after_seconds,
    )


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"due_at is not an ISO instant: {text!r}.") from None
    if instant.tzinfo is None:
        raise InvalidInputError(f"due_at needs a time zone: {text!r}.")
    return instant


def opening_tags(
    ticket: RunAttempt, schedule_id: int, present: Mapping[str, str]
) -> dict[str, str]:
    """The ticket for the later steps, and the tags that a run from the launchpad lacks."""
    return {
        RUN_ID_TAG: str(ticket.run_id),
        ATTEMPT_TAG: str(ticket.attempt),
        "automation/schedule_id": str(schedule_id),
        "automation/trigger": present.get("automation/trigger", Trigger.LAUNCHPAD.value),
    }


def crm_of_run(services: "Services", run_id: int) -> "FicheSource":
    """The CRM client with the key of the run's schedule, if it has one."""
    from automation_pipeline.automation.queries.runs import external_key_of

    with services.database.reading() as session:
        key = external_key_of(session, run_id)
    return services.crm_with(key)


def selection_options(services: "Services") -> "SelectionOptions":
    from automation_pipeline.automation.selection import SelectionOptions

    settings = services.settings
    return SelectionOptions(
        processes=processes_of(settings),
        cooldown=timedelta(milliseconds=settings.automation_revalidation_cooldown_ms),
        recordings_per_minute=services.speech_options.per_minute,
    )


def fetch_options(services: "Services") -> "FetchOptions":
    from automation_pipeline.automation.fetching import FetchOptions

    settings = services.settings
    seconds = settings.automation_fiche_details_max_wait_ms / 1000
    return FetchOptions(
        budget_seconds=seconds,
        default_max_recordings=settings.automation_max_recordings_per_fiche,
        poll_seconds=settings.automation_fiche_details_poll_interval_seconds,
    )


def transcript_reader(services: "Services", owner: str) -> Callable[[str], Awaitable[object]]:
    """A function that transcribes a fiche's missing recordings. The provider is created only if a
    recording is missing."""
    from automation_pipeline.transcription.models import (
        TranscriptionPriority,
        TranscriptionRunRequest,
    )
    from automation_pipeline.transcription.runs import transcribe_fiches

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


def batch_context(services: "Services", owner: str, run_id: int) -> "BatchContext":
    """The context of one run, because its schedule may have its own CRM key."""
    from automation_pipeline.audits.audits import audit_fiche
    from automation_pipeline.automation.transcribing import BatchContext, WorkOptions
    from automation_pipeline.transcription.runs import begin_transcriptions, work_on_runs

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
        requests: "Sequence[TranscriptionRunRequest]",
    ) -> "Sequence[TranscriptionSummary | AutomationError]":
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

    async def audit(request: "FicheAuditRequest") -> "AuditSummary":
        return await audit_fiche(
            request,
            database=services.database,
            source=crm(),
            ensure_transcribed=ensure_transcribed,
            judge=services.judge,
            clock=services.clock,
        )

    return BatchContext(services.database, services.clock, options, begin, transcribe, audit)
