"""A harness for tests of audits: the CRM and the model in memory, with a real database."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import func, select

from automation_pipeline.audits.audits import audit_fiche
from automation_pipeline.audits.configs import import_config
from automation_pipeline.audits.judging import Judge
from automation_pipeline.audits.models.audits import (
    AuditOptions,
    AuditSummary,
    FicheAuditRequest,
    StoredStep,
)
from automation_pipeline.audits.queries.audits import audits_by_tracking_id
from automation_pipeline.audits.queries.steps import stored_steps
from automation_pipeline.audits.tables import AuditBatchItemRow, AuditBatchRow, AuditRow
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.retry import Backoff
from automation_pipeline.fiches.mirror import fetch_fiches
from automation_pipeline.fiches.models.fiches import Recording
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.claims import DatabaseClaims, DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.transcription.models import Chunk
from automation_pipeline.transcription.queries.runs import save_transcripts
from automation_pipeline_tests.audits.configurations import document
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import transcript
from automation_pipeline_tests.transcription.harness import NoLimit, call, event_payloads


@dataclass(frozen=True)
class StoredBatch:
    total: int
    succeeded: int
    failed: int
    is_complete: bool
    failures: list[tuple[str, str | None]]


def stored_batch(database: Database, batch_id: str | None) -> StoredBatch:
    """The counters of a batch, and the fiches whose audit failed with the reasons."""
    items = select(AuditBatchItemRow.fiche_id, AuditBatchItemRow.error).where(
        AuditBatchItemRow.batch_id == batch_id, AuditBatchItemRow.state == "failed"
    )
    with database.reading() as session:
        row = session.get_one(AuditBatchRow, batch_id)
        failures = list(session.execute(items.order_by(AuditBatchItemRow.fiche_id)).tuples())
        ended = row.completed_at is not None
        return StoredBatch(row.total, row.succeeded, row.failed, ended, failures)


OPTIONS = AuditOptions(
    per_minute=1_000_000,
    attempts=3,
    backoff=Backoff(base_seconds=0, cap_seconds=0),
    steps_at_once=3,
    max_prompt_characters=100_000,
    lease_seconds=30,
)
CALL_TEXT = "speaker_0: Bonjour, cet appel est enregistré.\nspeaker_1: Très bien, je vous écoute."


@dataclass
class AuditHarness:
    database: Database
    clock: FakeClock
    model: FakeLanguageModel = field(default_factory=FakeLanguageModel)
    crm: FakeFicheSource = field(default_factory=FakeFicheSource)
    options: AuditOptions = OPTIONS
    transcribed: list[str] = field(default_factory=list)
    ensure_transcribed: Callable[[str], Awaitable[object]] | None = None

    @property
    def judge(self) -> Judge:
        claims = DatabaseClaims(self.database)
        calls = Semaphore(
            DatabasePermits(self.database), "language-model", 50, "test", poll_seconds=0.01
        )
        return Judge(self.model, NoLimit(), calls, claims, self.options)

    def set_options(self, **options: Any) -> None:
        self.options = replace(self.options, **options)

    def sell(
        self, fiche_id: str, *calls: Recording, text: str | None = CALL_TEXT, times: int = 1
    ) -> None:
        """Store a fiche of the CRM. Each of its calls has `times` chunks with this text."""
        calls = calls or (call(f"{fiche_id}01"),)
        self.crm.add(fiche(fiche_id, *calls))
        asyncio.run(
            fetch_fiches(
                [fiche_id],
                since=self.clock.now(),
                settle=lambda _session, _outcome: None,
                database=self.database,
                source=self.crm,
                clock=self.clock,
            )
        )
        if text is not None:
            self.transcribe(fiche_id, text, times)

    def transcribe(self, fiche_id: str, text: str = CALL_TEXT, times: int = 1) -> None:
        chunks = [
            Chunk(n, 10.0 * n, 10.0 * n + 9, 2, ("speaker_0", "speaker_1"), text)
            for n in range(times)
        ]
        with self.database.transaction() as session:
            calls = select(CallRecordingRow).where(CallRecordingRow.call_id.startswith(fiche_id))
            for row in session.scalars(calls).all():
                transcripts = transcript(f"tr_{row.call_id}"), chunks if text else []
                save_transcripts(session, {row.id: transcripts})

    def configure(self, steps: int = 3, name: str = "Sales", **fields: object) -> int:
        given = document(name, steps, **fields)
        return import_config(given, database=self.database, clock=self.clock).id

    def replace_config(self, name: str, steps: list[dict[str, Any]]) -> None:
        import_config(
            {"name": name, "steps": steps}, update=True, database=self.database, clock=self.clock
        )

    def audit(
        self, fiche_id: str, config_id: int, tracking_id: str = "audit-1", **request: Any
    ) -> AuditSummary:
        return asyncio.run(self.auditing(fiche_id, config_id, tracking_id, **request))

    async def auditing(
        self, fiche_id: str, config_id: int, tracking_id: str = "audit-1", **request: Any
    ) -> AuditSummary:
        async def transcribe(fiche_id: str) -> None:
            self.transcribed.append(fiche_id)

        return await audit_fiche(
            FicheAuditRequest(
                tracking_id=tracking_id, fiche_id=fiche_id, audit_config_id=config_id, **request
            ),
            database=self.database,
            source=self.crm,
            ensure_transcribed=self.ensure_transcribed or transcribe,
            judge=self.judge,
            clock=self.clock,
        )

    def row(self, tracking_id: str = "audit-1") -> AuditRow:
        with self.database.reading() as session:
            return session.scalars(
                select(AuditRow).where(AuditRow.tracking_id == tracking_id)
            ).one()

    def steps(self, tracking_id: str = "audit-1") -> list[StoredStep]:
        with self.database.reading() as session:
            found = audits_by_tracking_id(session, [tracking_id]).get(tracking_id)
            return stored_steps(session, found.summary.audit_id) if found else []

    def audits(self) -> int:
        with self.database.reading() as session:
            return session.scalar(select(func.count()).select_from(AuditRow)) or 0

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        return event_payloads(self.database, name)

    def notes(self) -> list[str]:
        with self.database.reading() as session:
            return list(session.scalars(select(WorkflowLogRow.message).order_by(WorkflowLogRow.id)))
