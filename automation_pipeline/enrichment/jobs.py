"""Work on an enrichment job: call each register in turn under the claim on the company's SIREN."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import correlated, log
from automation_pipeline.core.metrics import observe
from automation_pipeline.enrichment import events
from automation_pipeline.enrichment.events import log_fields
from automation_pipeline.enrichment.models import (
    CALLS,
    DURATION_MS,
    ENDED_JOBS,
    LATENCY_MS,
    REQUIRED_SOURCES,
    EnrichmentJobShown,
    Registries,
    RegistrySource,
    SourceApi,
    SourceOutcome,
    claim_key,
)
from automation_pipeline.enrichment.queries.jobs import (
    LostJobError,
    StartedJob,
    finish_job,
    get_job,
    other_establishments,
    postpone_job,
    record_heartbeat,
    record_visit,
    save_outcome,
    siren_of,
    start_job,
)
from automation_pipeline.enrichment.queries.requests import not_looked_up
from automation_pipeline.enrichment.rules.evaluation import postponed_until
from automation_pipeline.enrichment.sources import call_source
from automation_pipeline.storage.database import Database, Session

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")

_log = log(__name__)
# A job looks up at most this many establishments besides its own.
MAX_ESTABLISHMENTS = 100


async def work_enrichment(
    job_id: int, *, registries: Registries, database: Database, clock: Clock, owner: str
) -> EnrichmentJobShown:
    """Work on the job unless it has ended or another worker has claimed it. Return its current state."""
    await _Worker(job_id, registries, database, clock, owner).work()
    return await asyncio.to_thread(database.read, get_job, job_id)


class _Worker:
    def __init__(
        self, job_id: int, registries: Registries, database: Database, clock: Clock, owner: str
    ) -> None:
        self._job_id, self._registries, self._owner = job_id, registries, owner
        self._database, self._now = database, clock.now
        self._clock, self._options = clock, registries.options

    async def work(self) -> None:
        siren = await asyncio.to_thread(self._database.read, siren_of, self._job_id)
        take, seconds = self._registries.claims.take, self._options.lock_seconds
        claim = await asyncio.to_thread(take, claim_key(siren), self._owner, seconds)
        if claim is None:
            await self._write(record_visit, self._job_id, self._now())
            return
        try:
            with suppress(LostJobError):
                await self._work_under(claim)
        finally:
            with suppress(TransientError):  # a claim that is not released expires
                await asyncio.shield(asyncio.to_thread(self._registries.claims.release, claim))

    async def _work_under(self, claim: Claim) -> None:
        limit = self._options.max_attempts
        job = await self._write(start_job, self._job_id, claim, limit, self._now())
        if job is None:
            return
        # The job has the correlation id of its first requester, not of this caller.
        with correlated(job.facts.correlation_id):
            if job.facts.attempt > limit:
                await self._finish(job, {})
                return
            fields = log_fields(events.STARTED, job.facts)
            _log.info("Enrichment started", attempt=job.facts.attempt, **fields)
            await self._call_with_heartbeats(job, claim)

    async def _call_with_heartbeats(self, job: StartedJob, claim: Claim) -> None:
        """Call the sources until they have answered or the claim is lost."""
        calls = asyncio.create_task(self._call_sources(job))
        heartbeats = asyncio.create_task(self._send_heartbeats(job, claim))
        try:
            await asyncio.wait({calls, heartbeats}, return_when=asyncio.FIRST_COMPLETED)
            if not calls.done():
                heartbeats.result()
                raise LostJobError
            calls.result()
        finally:
            for task in (calls, heartbeats):
                task.cancel()
            await asyncio.gather(calls, heartbeats, return_exceptions=True)

    async def _send_heartbeats(self, job: StartedJob, claim: Claim) -> None:
        """Extend the claim until it is lost. A missed heartbeat does no harm, because all writes are fenced."""
        extend, seconds = self._registries.claims.extend, self._options.lock_seconds
        while True:
            await asyncio.sleep(self._options.heartbeat_seconds)
            with suppress(TransientError):
                if not await asyncio.to_thread(extend, claim, seconds):
                    return
                await self._write(record_heartbeat, job, self._now())

    async def _call_sources(self, job: StartedJob) -> None:
        for api, source in self._registries.sources.items():
            if api in job.called:
                continue
            outcome = await self._call(job, source, job.siret)
            until = postponed_until(outcome, job.postponements)
            if until is not None:
                await self._write(postpone_job, job, outcome, until, self._now())
                return
            await self._write(save_outcome, job, outcome, self._now())
            self._record_call(job, outcome)
            if outcome.source in REQUIRED_SOURCES and outcome.is_unknown:
                break
        await self._finish(job, await self._look_up_establishments(job))

    async def _look_up_establishments(self, job: StartedJob) -> Mapping[str, Sequence[str]]:
        """Return the warnings about the establishments of the other waiting requests. A lookup that
        fails is a warning of the request and not a failure of the job."""
        warnings: dict[str, Sequence[str]] = {}
        source = self._registries.sources.get(SourceApi.SEARCH)
        while source is not None and len(warnings) < MAX_ESTABLISHMENTS:
            # Requests can attach to the job while it runs.
            sirets = await self._write(other_establishments, job)
            missing = sirets - warnings.keys()
            if not missing:
                break
            siret = min(missing)
            outcome = await self._call(job, source, siret)
            warnings[siret] = outcome.record.warnings if outcome.record else [not_looked_up(siret)]
            self._record_call(job, outcome)
        return warnings

    async def _call(
        self, job: StartedJob, source: RegistrySource, siret: str | None
    ) -> SourceOutcome:
        return await call_source(
            source,
            job.facts.siren,
            siret,
            registries=self._registries,
            database=self._database,
            clock=self._clock,
        )

    async def _write(
        self,
        query: Callable[Concatenate[Session, Parameters], Value],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Value:
        def write() -> Value:
            with self._database.transaction() as session:
                return query(session, *arguments, **named)

        return await asyncio.to_thread(write)

    def _record_call(self, job: StartedJob, outcome: SourceOutcome) -> None:
        if not outcome.was_called:
            return
        code, meter = outcome.error_code or "", self._registries.meter
        meter.count(CALLS, source=outcome.source, status=outcome.status, error_code=code)
        observe(meter, LATENCY_MS, outcome.duration_ms)
        fields = log_fields(events.SOURCE_FETCHED, job.facts, outcome=outcome)
        _log.info("A source was called", **fields)

    async def _finish(self, job: StartedJob, warnings: Mapping[str, Sequence[str]]) -> None:
        evaluation = await self._write(finish_job, job, self._options, self._now(), warnings)
        self._registries.meter.count(ENDED_JOBS, status=evaluation.status)
        view = await asyncio.to_thread(self._database.read, get_job, job.id)
        if view.started_at is not None and view.finished_at is not None:
            duration = (view.finished_at - view.started_at).total_seconds() * 1000
            observe(self._registries.meter, DURATION_MS, duration)
        fields = log_fields(events.COMPLETED, job.facts) | {"error_message": evaluation.error}
        _log.info("Enrichment has ended", status=evaluation.status, **fields)
