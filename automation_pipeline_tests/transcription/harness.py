"""A harness for tests of transcription: the CRM and the speech provider in memory, with a real database."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sqlalchemy import select, update

from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.retry import Backoff
from automation_pipeline.fiches.models.fiches import Recording
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.statements import database_now, database_time
from automation_pipeline.transcription.models import (
    SpeechOptions,
    SpeechProvider,
    TaskState,
    Transcript,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.runs import list_summaries
from automation_pipeline.transcription.recordings import transcribe_waiting
from automation_pipeline.transcription.runs import begin_transcription
from automation_pipeline.transcription.tables import TranscriptionTaskRow
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording
from automation_pipeline_tests.fakes.speech import FakeSpeechToText, transcript
from automation_pipeline_tests.waiting import advance_time, run_with_fake_time, wait_until_async

SPEECH_OPTIONS = SpeechOptions(
    per_minute=60_000,
    max_attempts=3,
    backoff=Backoff(base_seconds=0, cap_seconds=0),
    lease_seconds=30,
    per_fiche=10,
    progress_every=3,
)


class NoLimit:
    """A rate limit without waits. `reserved` counts the reservations."""

    def __init__(self) -> None:
        self.reserved = 0

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        self.reserved += 1
        return 0.0


def transcript_of(url: str) -> Transcript:
    return transcript(f"tr_{url.rsplit('/', 1)[-1]}")


def call(call_id: str, *, url: str | None = None) -> Recording:
    return recording(call_id, url=f"https://records.example.test/{call_id}" if url is None else url)


def event_payloads(database: Database, name: str | None = None) -> list[dict[str, Any]]:
    """Names and payloads of the events in the outbox, or of those with this name."""
    with database.reading() as session:
        rows = session.scalars(select(OutboxRow).order_by(OutboxRow.id)).all()
    return [
        {"name": row.event_name, **row.payload} for row in rows if name in {None, row.event_name}
    ]


@dataclass
class TranscriptionHarness:
    database: Database
    clock: FakeClock
    options: SpeechOptions = SPEECH_OPTIONS
    crm: FakeFicheSource = field(default_factory=FakeFicheSource)
    speech: FakeSpeechToText = field(
        default_factory=lambda: FakeSpeechToText(otherwise=transcript_of)
    )
    limiter: NoLimit = field(default_factory=NoLimit)

    def sell(self, fiche_id: str, *calls: Recording) -> None:
        self.crm.add(fiche(fiche_id, *calls))

    def begin(
        self,
        fiche_id: str,
        run_id: str | None = None,
        priority: TranscriptionPriority = TranscriptionPriority.NORMAL,
    ) -> TranscriptionSummary:
        request = TranscriptionRunRequest(
            run_id or f"run-{fiche_id}-{Random().random()}", fiche_id, priority
        )
        return asyncio.run(
            begin_transcription(request, database=self.database, source=self.crm, clock=self.clock)
        )

    def work(self, *run_ids: str, owner: str = "me") -> None:
        asyncio.run(self.working(*run_ids, owner=owner))

    def work_for_long(self, *run_ids: str) -> None:
        """Work with one thread, so that a call may last `longer_than_its_lease`."""
        run_with_fake_time(self.working(*run_ids), threads=1)

    async def working(self, *run_ids: str, owner: str = "me") -> None:
        provider = SpeechProvider(self.speech, self.limiter, self.options)
        await transcribe_waiting(run_ids, database=self.database, provider=provider, owner=owner)

    async def longer_than_its_lease(self) -> None:
        """Let six heartbeats pass, a quarter of a lease apart. Before each, the claim is about to expire
        by the database's clock."""
        for _ in range(6):
            await asyncio.to_thread(self._shorten_claims)
            advance_time(self.options.lease_seconds / 4)
            await wait_until_async(lambda: self._seconds_left() > 0.75 * self.options.lease_seconds)

    def _shorten_claims(self) -> None:
        held = update(TranscriptionTaskRow).where(TranscriptionTaskRow.state == TaskState.WORKING)
        with self.database.transaction() as session:
            session.execute(
                held.values(leased_until=database_now(0.65 * self.options.lease_seconds))
            )

    def _seconds_left(self) -> float:
        """The remaining time of the claim that expires first."""
        held = select(TranscriptionTaskRow.leased_until).where(
            TranscriptionTaskRow.state == TaskState.WORKING
        )
        with self.database.reading() as session:
            return (min(session.scalars(held)) - database_time(session)).total_seconds()

    def summary(self, run_id: str) -> TranscriptionSummary:
        with self.database.reading() as session:
            return list_summaries(session, [run_id])[0]

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        return event_payloads(self.database, name)

    def names(self) -> list[str]:
        return [str(event["name"]) for event in self.events()]

    def transcribed(self) -> set[str]:
        with self.database.reading() as session:
            return set(
                session.scalars(
                    select(CallRecordingRow.call_id).where(CallRecordingRow.has_transcription)
                )
            )


def urls(call_ids: Sequence[str], of: Callable[[str], Recording] = call) -> list[str]:
    return [of(call_id).url for call_id in call_ids]
