"""Enrichment jobs: work on one, and sweep for due and lost jobs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

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
    LOST_LEASES,
    REQUIRED_SOURCES,
    EnrichmentJobShown,
    JobState,
    SourceApi,
    SourceOutcome,
    SourceStatus,
    claim_key,
)
from automation_pipeline.enrichment.ports import Registries, RegistrySource
from automation_pipeline.enrichment.queries.jobs import (
    LostJobError,
    StartedJob,
    abandon_job,
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
from automation_pipeline.enrichment.queries.maintenance import (
    count_open_jobs,
    mark_stale,
    refresh_due,
    request_lost_jobs,
)
from automation_pipeline.enrichment.queries.requests import not_looked_up
from automation_pipeline.enrichment.rules.evaluation import Evaluation, postponed_until
from automation_pipeline.enrichment.sources import call_source, source_statuses
from automation_pipeline.storage.database import Database, Session

Value = TypeVar("Value")

_log = log(__name__)
# The limit of other establishments per job.
MAX_ESTABLISHMENTS = 100
# The share of the daily quotas that the sweep leaves to requests.
RESERVED_SHARE = 0.2


async def work_enrichment(
    job_id: int, *, registries: Registries, database: Database, clock: Clock, owner: str
) -> EnrichmentJobShown:
    """Work on the job unless it has ended or another worker has claimed it, and return it."""
    worker = _Worker(job_id, registries, database, clock, owner)
    await worker.work()
    return await asyncio.to_thread(worker.view)


class _Worker:
    def __init__(
        self, job_id: int, registries: Registries, database: Database, clock: Clock, owner: str
    ) -> None:
        self._job_id, self._registries, self._owner = job_id, registries, owner
        self._database, self._clock = database, clock
        self._options = registries.options

    def view(self) -> EnrichmentJobShown:
        with self._database.reading() as session:
            return get_job(session, self._job_id)

    async def work(self) -> None:
        claim = await asyncio.to_thread(self._acquire)
        if claim is None:
            await self._write(lambda session: record_visit(session, self._job_id, self._now()))
            return
        try:
            with suppress(LostJobError):
                await self._work_under(claim)
        finally:
            with suppress(TransientError):  # the claim expires
                await asyncio.shield(asyncio.to_thread(self._registries.claims.release, claim))

    def _acquire(self) -> Claim | None:
        with self._database.reading() as session:
            siren = siren_of(session, self._job_id)
        claims = self._registries.claims
        return claims.take(claim_key(siren), self._owner, self._options.lock_seconds)

    async def _work_under(self, claim: Claim) -> None:
        limit = self._options.max_attempts
        job = await self._write(
            lambda session: start_job(session, self._job_id, claim, limit, self._now())
        )
        if job is None:
            return
        # The job has the correlation id of its first requester, not of this caller.
        with correlated(job.facts.correlation_id):
            if job.facts.attempt > limit:
                evaluation = await self._write(
                    lambda session: abandon_job(session, job, self._options, self._now())
                )
                await asyncio.to_thread(self._record_end, job, evaluation)
                return
            fields = log_fields(events.STARTED, job.facts)
            _log.info("Enrichment has begun", attempt=job.facts.attempt, **fields)
            await self._call_with_heartbeats(job, claim)

    async def _call_with_heartbeats(self, job: StartedJob, claim: Claim) -> None:
        """Stops when the claim is lost."""
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
        """Returns when the claim is lost. A missed heartbeat does no harm: all writes are fenced."""
        extend, seconds = self._registries.claims.extend, self._options.lock_seconds
        while True:
            await asyncio.sleep(self._options.heartbeat_seconds)
            with suppress(TransientError):
                if not await asyncio.to_thread(extend, claim, seconds):
                    return
                await self._write(lambda session: record_heartbeat(session, job, self._now()))

    async def _call_sources(self, job: StartedJob) -> None:
        for api, source in self._registries.sources.items():
            if api in job.called:
                continue
            outcome = await self._call(job, source, job.siret)
            until = postponed_until(outcome, job.put_offs)
            if until is not None:
                await self._save_postponement(job, outcome, until)
                return
            await self._save_outcome(job, outcome)
            if outcome.source in REQUIRED_SOURCES and outcome.is_unknown:
                break
        warnings = await self._look_up_establishments(job)
        evaluation = await self._write(
            lambda session: finish_job(session, job, self._options, self._now(), warnings)
        )
        await asyncio.to_thread(self._record_end, job, evaluation)

    async def _save_postponement(
        self, job: StartedJob, outcome: SourceOutcome, until: datetime
    ) -> None:
        await self._write(lambda session: postpone_job(session, job, outcome, until, self._now()))

    async def _save_outcome(self, job: StartedJob, outcome: SourceOutcome) -> None:
        await self._write(lambda session: save_outcome(session, job, outcome, self._now()))
        self._record_call(job, outcome)

    async def _look_up_establishments(self, job: StartedJob) -> Mapping[str, Sequence[str]]:
        """The warnings about the establishments of other waiting requests. A lookup that fails, or
        that exceeds the limit, is a warning of the request and not a failure of the job."""
        warnings: dict[str, Sequence[str]] = {}
        source = self._registries.sources.get(SourceApi.SEARCH)
        while source is not None and len(warnings) < MAX_ESTABLISHMENTS:
            # Requests can attach to the job while it runs.
            sirets = await self._write(lambda session: other_establishments(session, job))
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

    async def _write(self, work: Callable[[Session], Value]) -> Value:
        def write() -> Value:
            with self._database.transaction() as session:
                return work(session)

        return await asyncio.to_thread(write)

    def _record_call(self, job: StartedJob, outcome: SourceOutcome) -> None:
        if not outcome.was_called:
            return
        code, meter = outcome.error.error_code if outcome.error else "", self._registries.meter
        meter.count(CALLS, source=outcome.source, status=outcome.status, error_code=code)
        observe(meter, LATENCY_MS, outcome.duration_ms)
        fields = log_fields(events.SOURCE_FETCHED, job.facts, outcome=outcome)
        _log.info("A source was asked", **fields)

    def _record_end(self, job: StartedJob, evaluation: Evaluation) -> None:
        self._registries.meter.count(ENDED_JOBS, status=evaluation.status)
        view = self.view()
        if view.started_at is not None and view.finished_at is not None:
            duration = (view.finished_at - view.started_at).total_seconds() * 1000
            observe(self._registries.meter, DURATION_MS, duration)
        fields = log_fields(events.COMPLETED, job.facts) | {"error_message": evaluation.error}
        _log.info("Enrichment has ended", status=evaluation.status, **fields)

    def _now(self) -> datetime:
        return self._clock.now()


@dataclass(frozen=True)
class SweepReport:
    stale: int = 0
    refreshed: int = 0
    asked_again: int = 0

    def __str__(self) -> str:
        again = f"{self.asked_again} workers were asked for again"
        return f"{self.stale} grew stale; {self.refreshed} are refreshed; {again}."


def sweep_enrichments(
    *, registries: Registries, database: Database, clock: Clock, limit: int = 50
) -> SweepReport:
    """Request workers for lost jobs, mark stale companies and refresh due ones: at most `limit` of
    each, and no more refreshes than the remaining daily quotas of the sources allow."""
    options, now = registries.options, clock.now()
    with database.transaction() as session:
        again = request_lost_jobs(session, now, options.lock_seconds, limit)
    lost = again.count(JobState.RUNNING)
    if lost:
        registries.meter.count(LOST_LEASES, lost)
    with database.transaction() as session:
        stale = mark_stale(session, now, options.freshness, limit)
    with database.reading() as session:
        statuses, open_jobs = source_statuses(session), count_open_jobs(session)
    left = _refresh_limit(registries, statuses, open_jobs, now, limit)
    with database.transaction() as session:
        refreshed = refresh_due(session, now, left) if left else 0
    return SweepReport(stale, refreshed, len(again))


def _refresh_limit(
    registries: Registries,
    statuses: Mapping[SourceApi, SourceStatus],
    open_jobs: int,
    now: datetime,
    limit: int,
) -> int:
    """Zero while a required source rests. Each open job is about to call each source once."""
    if any(statuses[api].is_resting(now) for api in REQUIRED_SOURCES):
        return 0
    left = [limit]
    for api, source in registries.sources.items():
        if source.calls_a_day is not None:
            quota = int(source.calls_a_day * (1 - RESERVED_SHARE))
            left.append(quota - statuses[api].used_on(now.date()) - open_jobs)
    return max(min(left), 0)
