"""Jobs: work on one, sweep, remove."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import correlated, log
from automation_pipeline.core.metrics import observe
from automation_pipeline.enrichment import events
from automation_pipeline.enrichment.events import job_log_fields
from automation_pipeline.enrichment.models import (
    CALLS,
    DURATION_MS,
    ENDED_JOBS,
    LATENCY_MS,
    LOST_LEASES,
    REQUIRED_SOURCES,
    JobState,
    SourceApi,
    SourceOutcome,
    claim_key,
)
from automation_pipeline.enrichment.ports import Registries, RegistrySource
from automation_pipeline.enrichment.queries.jobs import (
    LostJobError,
    StartedJob,
    abandon_job,
    finish_job,
    other_establishments,
    postpone_job,
    record_heartbeat,
    record_visit,
    save_outcome,
    siren_of,
    start_job,
)
from automation_pipeline.enrichment.queries.maintenance import (
    JOBS,
    MOVES,
    count_open_jobs,
    mark_stale,
    refresh_due,
    request_lost_jobs,
)
from automation_pipeline.enrichment.queries.requests import not_looked_up
from automation_pipeline.enrichment.queries.sources import SourceStatus, source_statuses
from automation_pipeline.enrichment.queries.views import JobView, get_job
from automation_pipeline.enrichment.rules.evaluation import Evaluation, postponed_until
from automation_pipeline.enrichment.sources import call_source
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.retention import PurgePass, purge_expired

Value = TypeVar("Value")

_log = log(__name__)
# Those that one job looks up, besides its own.
MOST_ESTABLISHMENTS = 100


async def work_enrichment(
    job_id: int, *, registries: Registries, database: Database, clock: Clock, owner: str
) -> JobView:
    """How the job stands afterwards. Where somebody else is at it, or was, nothing is done."""
    worker = _Worker(job_id, registries, database, clock, owner)
    await worker.work()
    return await asyncio.to_thread(worker.standing)


class _Worker:
    def __init__(
        self, job_id: int, registries: Registries, database: Database, clock: Clock, owner: str
    ) -> None:
        self._job_id, self._registries, self._owner = job_id, registries, owner
        self._database, self._clock = database, clock

    def standing(self) -> JobView:
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
            with suppress(TransientError):  # it ends by itself
                await asyncio.shield(asyncio.to_thread(self._registries.claims.release, claim))

    async def _work_under(self, claim: Claim) -> None:
        knobs = self._registries.knobs
        begun = await self._write(
            lambda session: start_job(session, self._job_id, claim, knobs.max_attempts, self._now())
        )
        if begun is not None:
            with correlated(
                begun.facts.correlation_id
            ):  # whoever is waited for here may only be attached
                await self._go_on(begun, claim)

    async def _go_on(self, begun: StartedJob, claim: Claim) -> None:
        knobs = self._registries.knobs
        if begun.facts.attempt > knobs.max_attempts:
            evaluation = await self._write(
                lambda session: abandon_job(session, begun, knobs, self._now())
            )
            await asyncio.to_thread(self._tell, begun, evaluation)
            return
        _log.info(
            "Enrichment has begun",
            attempt=begun.facts.attempt,
            **job_log_fields(begun.facts, events.STARTED),
        )
        await self._beside_heartbeats(begun, claim)

    async def _beside_heartbeats(self, begun: StartedJob, claim: Claim) -> None:
        """Whoever has lost the claim stops at once."""
        working = asyncio.create_task(self._go_through(begun))
        beating = asyncio.create_task(self._keep_beating(begun, claim))
        try:
            await asyncio.wait({working, beating}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                beating.result()
                raise LostJobError
            working.result()
        finally:
            for task in (working, beating):
                task.cancel()
            await asyncio.gather(working, beating, return_exceptions=True)

    async def _keep_beating(self, begun: StartedJob, claim: Claim) -> None:
        """Until the claim is lost. A beat that is missed is no loss: what is written is fenced."""
        knobs = self._registries.knobs
        while True:
            await asyncio.sleep(knobs.heartbeat_seconds)
            with suppress(TransientError):
                if not await asyncio.to_thread(
                    self._registries.claims.extend, claim, knobs.lock_seconds
                ):
                    return
                await self._write(lambda session: record_heartbeat(session, begun, self._now()))

    async def _go_through(self, begun: StartedJob) -> None:
        for api, source in self._registries.sources.items():
            if api in begun.called:
                continue
            outcome = await self._ask(begun, source, begun.siret)
            until = postponed_until(outcome, begun.put_offs)
            if until is not None:
                await self._write(
                    partial(
                        postpone_job, begun=begun, outcome=outcome, until=until, now=self._now()
                    )
                )
                return
            await self._keep(begun, outcome)
            if outcome.source in REQUIRED_SOURCES and outcome.is_unknown:
                break
        knobs, looked_up = self._registries.knobs, await self._look_up_others(begun)
        evaluation = await self._write(
            lambda session: finish_job(session, begun, knobs, self._now(), looked_up)
        )
        await asyncio.to_thread(self._tell, begun, evaluation)

    async def _look_up_others(self, begun: StartedJob) -> Mapping[str, Sequence[str]]:
        """Warnings of the establishments that other requests of the company name. A lookup that
        fails is not a failure of the job, and neither are more establishments than a job looks up:
        their requests say so."""
        looked_up: dict[str, Sequence[str]] = {}
        source = self._registries.sources.get(SourceApi.SEARCH)
        while source is not None and len(looked_up) < MOST_ESTABLISHMENTS:
            wanted = (
                await self._write(lambda session: other_establishments(session, begun))
                - looked_up.keys()
            )
            if not wanted:
                break
            siret = min(wanted)
            outcome = await self._ask(begun, source, siret)
            looked_up[siret] = outcome.record.warnings if outcome.record else [not_looked_up(siret)]
            if outcome.was_called:
                self._log_outcome(begun, outcome)
        return looked_up

    async def _ask(
        self, begun: StartedJob, source: RegistrySource, siret: str | None
    ) -> SourceOutcome:
        return await call_source(
            source,
            begun.facts.siren,
            siret,
            registries=self._registries,
            database=self._database,
            clock=self._clock,
        )

    async def _keep(self, begun: StartedJob, outcome: SourceOutcome) -> None:
        await self._write(lambda session: save_outcome(session, begun, outcome, self._now()))
        if outcome.was_called:
            self._log_outcome(begun, outcome)

    def _acquire(self) -> Claim | None:
        with self._database.reading() as session:
            siren = siren_of(session, self._job_id)
        return self._registries.claims.take(
            claim_key(siren), self._owner, self._registries.knobs.lock_seconds
        )

    async def _write(self, work: Callable[[Session], Value]) -> Value:
        def written() -> Value:
            with self._database.transaction() as session:
                return work(session)

        return await asyncio.to_thread(written)

    def _log_outcome(self, begun: StartedJob, outcome: SourceOutcome) -> None:
        code = outcome.error.error_code if outcome.error else ""
        meter = self._registries.meter
        meter.count(CALLS, source=outcome.source, status=outcome.status, error_code=code)
        observe(meter, LATENCY_MS, outcome.duration_ms)
        _log.info(
            "A source was asked", **job_log_fields(begun.facts, events.SOURCE_FETCHED, outcome)
        )

    def _tell(self, begun: StartedJob, evaluation: Evaluation) -> None:
        self._registries.meter.count(ENDED_JOBS, status=evaluation.status)
        view = self.standing()
        if view.started_at is not None and view.finished_at is not None:
            took = (view.finished_at - view.started_at).total_seconds() * 1000
            observe(self._registries.meter, DURATION_MS, took)
        fields = job_log_fields(begun.facts, events.COMPLETED)
        _log.info(
            "Enrichment has ended",
            status=evaluation.status,
            **{**fields, "error_message": evaluation.error},
        )

    def _now(self) -> datetime:
        return self._clock.now()


# Of a source's day this share is kept for those who ask.
RESERVED_SHARE = 0.2


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
    """Each part bounded by the limit, and what is refreshed by what the sources' days have left."""
    knobs, now = registries.knobs, clock.now()
    with database.transaction() as session:
        again = request_lost_jobs(session, now, knobs.lock_seconds, limit)
    lost = again.count(JobState.RUNNING)
    if lost:
        registries.meter.count(LOST_LEASES, lost)
    with database.transaction() as session:
        stale = mark_stale(session, now, knobs.freshness, limit)
    with database.reading() as session:
        left = _refresh_limit(
            registries, source_statuses(session), count_open_jobs(session), now, limit
        )
    with database.transaction() as session:
        refreshed = refresh_due(session, now, left) if left else 0
    return SweepReport(stale, refreshed, len(again))


def _refresh_limit(
    registries: Registries,
    known: Mapping[SourceApi, SourceStatus],
    planned: int,
    now: datetime,
    limit: int,
) -> int:
    """None while a source rests without which nothing is a success. `planned` calls are about to be
    made."""
    if any(known[api].is_resting(now) for api in REQUIRED_SOURCES):
        return 0
    limited = (
        (api, one.calls_a_day)
        for api, one in registries.sources.items()
        if one.calls_a_day is not None
    )
    rest = [
        int(calls * (1 - RESERVED_SHARE)) - known[api].used_on(now.date()) - planned
        for api, calls in limited
    ]
    return max(min([limit, *rest]), 0)


def remove_old_jobs(
    look: PurgePass, *, keep_days: int, keep_move_days: int, database: Database
) -> dict[str, int]:
    return purge_expired([(JOBS, keep_days), (MOVES, keep_move_days)], look, database=database)
