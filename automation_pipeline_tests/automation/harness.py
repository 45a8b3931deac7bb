"""Runs whole automations in one call, with in-memory providers and a real database, without
Dagster."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlalchemy import select

from automation_pipeline.audits.audits import audit_fiche
from automation_pipeline.audits.judging import Judge
from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.automation.auditing import audit_batch
from automation_pipeline.automation.fetching import FetchOptions, fetch_batch, settle_fetch
from automation_pipeline.automation.models.runs import Run, RunAttempt
from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.queries.ledger import pending_batches
from automation_pipeline.automation.queries.run_details import logs_after
from automation_pipeline.automation.queries.runs import RunPlan, get_run, run_plan
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.automation.tables import FicheResultRow
from automation_pipeline.automation.transcribing import BatchContext, WorkOptions, transcribe_batch
from automation_pipeline.core.coordination import RateLimiter
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.fiches.models.fiches import Recording
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.transcription.models import (
    SpeechProvider,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionSummary,
)
from automation_pipeline.transcription.runs import (
    begin_transcriptions,
    transcribe_fiches,
    work_on_runs,
)
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.factories import (
    make_launch,
    make_schedule,
    run_selection,
)
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import (
    SPEECH_OPTIONS,
    NoLimit,
    call,
    transcript_of,
)
from automation_pipeline_tests.waiting import run_with_fake_time

FETCHING = FetchOptions(budget_seconds=120, default_max_recordings=0)
WORK = WorkOptions(
    transcription_seconds=120, audit_seconds=120, longest_pause_seconds=0.2, audits_at_once=3
)
ROOT = "dagster-1"


class Outcome(NamedTuple):
    """A summary of a ledger row; `detail` is its error or the reason why it was ignored."""

    status: str
    reason: str | None = None
    detail: str | None = None


@dataclass
class AutomationHarness(AuditHarness):
    speech: FakeSpeechToText = field(
        default_factory=lambda: FakeSpeechToText(otherwise=transcript_of)
    )
    fetching: FetchOptions = FETCHING
    work: WorkOptions = WORK
    limiter: RateLimiter = field(default_factory=NoLimit)

    @property
    def judge(self) -> Judge:
        return replace(super().judge, limiter=self.limiter)

    def add_to_crm(self, *fiche_ids: str, calls: int = 1, **information: object) -> None:
        """Add fiches with the given number of calls to the CRM, but not to the mirror."""
        for fiche_id in fiche_ids:
            self.crm.add(fiche(fiche_id, *self.calls(fiche_id, calls), **information))

    def calls(self, fiche_id: str, count: int = 1) -> list[Recording]:
        return [call(f"{fiche_id}{number:02}") for number in range(1, count + 1)]

    def url(self, fiche_id: str, number: int = 1) -> str:
        return self.calls(fiche_id, number)[-1].url

    def schedule(self, *fiche_ids: str, **fields: object) -> Schedule:
        return make_schedule(self.database, self.clock, fiche_ids, **fields)

    def automatic(self, steps: int = 1, name: str = "Sales") -> int:
        return self.configure(steps, name, runAutomatically=True)

    def run(self, *fiche_ids: str, **fields: object) -> Run:
        """Create a schedule and run it to its final status."""
        return self.run_schedule(self.schedule(*fiche_ids, **fields).id)

    def run_schedule(self, schedule_id: int, launch: str = ROOT) -> Run:
        return self.run_steps(self.open(schedule_id, launch))

    def open(self, schedule_id: int, launch: str = ROOT, **fields: object) -> RunAttempt:
        return open_run(
            make_launch(schedule_id, launch, **fields), database=self.database, clock=self.clock
        )

    def take_over(self, run_attempt: RunAttempt, launch: str = "dagster-2") -> RunAttempt:
        """Open the next attempt, as the launch that the watchdog requests for a lost run."""
        schedule_id = self.read(run_attempt).schedule_id
        return self.open(schedule_id, launch, run_id=run_attempt.run_id, is_next=True)

    def run_steps(self, run_attempt: RunAttempt) -> Run:
        for step in self.steps:
            step(run_attempt)
        return self.finalise(run_attempt)

    @property
    def steps(self) -> Sequence[Callable[[RunAttempt], object]]:
        return self.select, self.fetch, self.settle, self.run_work

    def prepare_work(self, *fiche_ids: str, **fields: object) -> RunAttempt:
        """Open a run and execute all steps before transcription."""
        run_attempt = self.open(self.schedule(*fiche_ids, **fields).id)
        for step in self.steps[:3]:
            step(run_attempt)
        return run_attempt

    def select(self, run_attempt: RunAttempt) -> Sequence[int]:
        return run_selection(run_attempt, self.database, self.clock, self.crm)

    def fetch(self, run_attempt: RunAttempt) -> Counter[str]:
        services = {
            "database": self.database,
            "source": self.crm,
            "clock": self.clock,
            "options": self.fetching,
        }
        fetched = [
            run_with_fake_time(fetch_batch(run_attempt, batch, **services))
            for batch in self.batches(run_attempt)
        ]  # type: ignore[arg-type]
        return sum(fetched, Counter())

    def settle(self, run_attempt: RunAttempt) -> list[int]:
        return settle_fetch(run_attempt, database=self.database, clock=self.clock)

    def run_work(self, run_attempt: RunAttempt) -> Counter[str]:
        worked = [self.work_batch(run_attempt, batch) for batch in self.settle(run_attempt)]
        return sum(worked, Counter())

    def work_batch(
        self,
        run_attempt: RunAttempt,
        batch: int = 0,
        *,
        threads: int | None = None,
        **overrides: object,
    ) -> Counter[str]:
        """Transcribe and audit a batch; `overrides` replaces fields of the context."""
        context = replace(self.context, **overrides)
        transcribed = run_with_fake_time(
            transcribe_batch(run_attempt, batch, context=context), threads=threads
        )
        return transcribed + run_with_fake_time(
            audit_batch(run_attempt, batch, context=context), threads=threads
        )

    def finalise(self, run_attempt: RunAttempt) -> Run:
        return finalise_run(
            run_attempt.run_id,
            database=self.database,
            clock=self.clock,
            attempt=run_attempt.attempt,
        )

    def batches(self, run_attempt: RunAttempt) -> list[int]:
        with self.database.reading() as session:
            return pending_batches(session, run_attempt.run_id)

    @property
    def context(self) -> BatchContext:
        return BatchContext(
            self.database,
            self.clock,
            self.work,
            self.begin_transcriptions,
            self.transcribe_runs,
            self._audit,
        )

    def plan(self, run_attempt: RunAttempt) -> RunPlan:
        with self.database.reading() as session:
            return run_plan(session, run_attempt.run_id)

    @property
    def provider(self) -> SpeechProvider:
        return SpeechProvider(self.speech, self.limiter, SPEECH_OPTIONS)

    async def begin_transcriptions(
        self, requests: Sequence[TranscriptionRunRequest]
    ) -> Sequence[TranscriptionSummary | AutomationError]:
        return await begin_transcriptions(
            requests, database=self.database, source=lambda: self.crm, clock=self.clock
        )

    async def transcribe_runs(self, run_ids: Sequence[str], own: Sequence[str]) -> object:
        return await work_on_runs(
            run_ids, own=own, database=self.database, provider=lambda: self.provider, owner="me"
        )

    async def _transcribe(self, requests: Sequence[TranscriptionRunRequest]) -> object:
        return await transcribe_fiches(
            requests,
            database=self.database,
            source=lambda: self.crm,
            provider=lambda: self.provider,
            clock=self.clock,
            owner="me",
        )

    async def _audit(self, request: FicheAuditRequest) -> AuditSummary:
        services = {"database": self.database, "source": self.crm, "clock": self.clock}
        return await audit_fiche(
            request, **services, ensure_transcribed=self._transcribe_missing, judge=self.judge
        )  # type: ignore[arg-type]

    async def _transcribe_missing(self, fiche_id: str) -> object:
        self.transcribed.append(fiche_id)
        return await self._transcribe(
            [TranscriptionRunRequest(f"missing-{fiche_id}", fiche_id, TranscriptionPriority.HIGH)]
        )

    def read(self, run: Run | RunAttempt) -> Run:
        with self.database.reading() as session:
            return get_run(session, run.id if isinstance(run, Run) else run.run_id)

    def outcomes(self, run: Run | RunAttempt) -> dict[str, Outcome]:
        """Return the outcomes by fiche ID, in selection order."""
        return {
            row.fiche_id: Outcome(row.status, row.reason, row.error or row.ignore_reason)
            for row in self.rows(run)
        }

    def statuses(self, run: Run | RunAttempt) -> list[str]:
        return [outcome.status for outcome in self.outcomes(run).values()]

    def rows(self, run: Run | RunAttempt) -> Sequence[FicheResultRow]:
        run_id = run.id if isinstance(run, Run) else run.run_id
        with self.database.reading() as session:
            ledger = (
                select(FicheResultRow)
                .where(FicheResultRow.run_id == run_id)
                .order_by(FicheResultRow.position)
            )
            return session.scalars(ledger).all()

    def logs(self, run: Run | RunAttempt) -> list[str]:
        with self.database.reading() as session:
            return [
                row.message
                for row in logs_after(
                    session, run.id if isinstance(run, Run) else run.run_id, 0, "debug"
                )
            ]

    def log_details(self, run: Run | RunAttempt, message: str) -> list[dict[str, object]]:
        """Return the details of the log lines with this message."""
        run_id = run.id if isinstance(run, Run) else run.run_id
        with self.database.reading() as session:
            lines = logs_after(session, run_id, 0, "debug")
        return [dict(line.metadata) for line in lines if line.message == message]

    def notes(self, run: Run | RunAttempt) -> list[str]:
        """Return the messages of the workflow log of the run."""
        run_id = run.id if isinstance(run, Run) else run.run_id
        with self.database.reading() as session:
            of_run = (
                WorkflowLogRow.entity_type == "automation_run",
                WorkflowLogRow.entity_id == str(run_id),
            )
            return list(
                session.scalars(
                    select(WorkflowLogRow.message).where(*of_run).order_by(WorkflowLogRow.id)
                )
            )
