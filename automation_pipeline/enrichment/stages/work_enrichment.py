"""Do a job of a SIREN: under its claim, source by source, to an end that is written in one piece."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.correlation import correlated
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.core.spread import observe
from automation_pipeline.enrichment.domain import events
from automation_pipeline.enrichment.domain.breaker import put_off_until
from automation_pipeline.enrichment.domain.evaluation import Evaluation
from automation_pipeline.enrichment.domain.keys import lock_key
from automation_pipeline.enrichment.domain.log_fields import of_job
from automation_pipeline.enrichment.domain.measures import CALLS, DURATION_MS, ENDED_JOBS, LATENCY_MS
from automation_pipeline.enrichment.domain.record import SourceOutcome
from automation_pipeline.enrichment.domain.vocabulary import REQUIRED_SOURCES, SourceApi
from automation_pipeline.enrichment.ports import Registries, Source
from automation_pipeline.enrichment.stages.call_source import call_source
from automation_pipeline.enrichment.store.finishing import finish, give_up
from automation_pipeline.enrichment.store.requests import not_looked_up
from automation_pipeline.enrichment.store.views import JobView, get_job
from automation_pipeline.enrichment.store.working import (
    Begun,
    LostJobError,
    beat,
    begin,
    keep_outcome,
    note_visit,
    other_establishments,
    put_off,
    siren_of,
)
from automation_pipeline.storage.database import Database, Session

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
    def __init__(self, job_id: int, registries: Registries, database: Database, clock: Clock, owner: str) -> None:
        self._job_id, self._registries, self._owner = job_id, registries, owner
        self._database, self._clock = database, clock

    def standing(self) -> JobView:
        with self._database.reading() as session:
            return get_job(session, self._job_id)

    async def work(self) -> None:
        claim = await asyncio.to_thread(self._acquire)
        if claim is None:
            await self._write(lambda session: note_visit(session, self._job_id, self._now()))
            return
        try:
            with suppress(LostJobError):
                await self._work_under(claim)
        finally:
            with suppress(TransientError):  # it ends by itself
                await asyncio.shield(asyncio.to_thread(self._registries.claims.release, claim))

    async def _work_under(self, claim: Claim) -> None:
        knobs = self._registries.knobs
        begun = await self._write(lambda session: begin(session, self._job_id, claim, knobs.max_attempts, self._now()))
        if begun is not None:
            with correlated(begun.facts.correlation_id):  # whoever is waited for here may only be attached
                await self._go_on(begun, claim)

    async def _go_on(self, begun: Begun, claim: Claim) -> None:
        knobs = self._registries.knobs
        if begun.facts.attempt > knobs.max_attempts:
            evaluation = await self._write(lambda session: give_up(session, begun, knobs, self._now()))
            await asyncio.to_thread(self._tell, begun, evaluation)
            return
        _log.info("Enrichment has begun", attempt=begun.facts.attempt, **of_job(begun.facts, events.STARTED))
        await self._beside_heartbeats(begun, claim)

    async def _beside_heartbeats(self, begun: Begun, claim: Claim) -> None:
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

    async def _keep_beating(self, begun: Begun, claim: Claim) -> None:
        """Until the claim is lost. A beat that is missed is no loss: what is written is fenced."""
        knobs = self._registries.knobs
        while True:
            await asyncio.sleep(knobs.heartbeat_seconds)
            with suppress(TransientError):
                if not await asyncio.to_thread(self._registries.claims.extend, claim, knobs.lock_seconds):
                    return
                await self._write(lambda session: beat(session, begun, self._now()))

    async def _go_through(self, begun: Begun) -> None:
        for api, source in self._registries.sources.items():
            if api in begun.called:
                continue
            outcome = await self._ask(begun, source, begun.siret)
            until = put_off_until(outcome, begun.put_offs)
            if until is not None:
                await self._write(partial(put_off, begun=begun, outcome=outcome, until=until, now=self._now()))
                return
            await self._keep(begun, outcome)
            if outcome.source in REQUIRED_SOURCES and outcome.is_unknown:
                break
        knobs, looked_up = self._registries.knobs, await self._look_up_others(begun)
        evaluation = await self._write(lambda session: finish(session, begun, knobs, self._now(), looked_up))
        await asyncio.to_thread(self._tell, begun, evaluation)

    async def _look_up_others(self, begun: Begun) -> Mapping[str, Sequence[str]]:
        """Warnings of the establishments that other requests of the company name. A lookup that fails is not a failure
        of the job, and neither are more establishments than a job looks up: their requests say so."""
        looked_up: dict[str, Sequence[str]] = {}
        source = self._registries.sources.get(SourceApi.SEARCH)
        while source is not None and len(looked_up) < MOST_ESTABLISHMENTS:
            wanted = await self._write(lambda session: other_establishments(session, begun)) - looked_up.keys()
            if not wanted:
                break
            siret = min(wanted)
            outcome = await self._ask(begun, source, siret)
            looked_up[siret] = outcome.record.warnings if outcome.record else [not_looked_up(siret)]
            if outcome.was_called:
                self._log_outcome(begun, outcome)
        return looked_up

    async def _ask(self, begun: Begun, source: Source, siret: str | None) -> SourceOutcome:
        return await call_source(
            source,
            begun.facts.siren,
            siret,
            registries=self._registries,
            database=self._database,
            clock=self._clock,
        )

    async def _keep(self, begun: Begun, outcome: SourceOutcome) -> None:
        await self._write(lambda session: keep_outcome(session, begun, outcome, self._now()))
        if outcome.was_called:
            self._log_outcome(begun, outcome)

    def _acquire(self) -> Claim | None:
        with self._database.reading() as session:
            siren = siren_of(session, self._job_id)
        return self._registries.claims.take(lock_key(siren), self._owner, self._registries.knobs.lock_seconds)

    async def _write(self, work: Callable[[Session], Value]) -> Value:
        def written() -> Value:
            with self._database.transaction() as session:
                return work(session)

        return await asyncio.to_thread(written)

    def _log_outcome(self, begun: Begun, outcome: SourceOutcome) -> None:
        code = outcome.error.error_code if outcome.error else ""
        meter = self._registries.meter
        meter.count(CALLS, source=outcome.source, status=outcome.status, error_code=code)
        observe(meter, LATENCY_MS, outcome.duration_ms)
        _log.info("A source was asked", **of_job(begun.facts, events.SOURCE_FETCHED, outcome))

    def _tell(self, begun: Begun, evaluation: Evaluation) -> None:
        self._registries.meter.count(ENDED_JOBS, status=evaluation.status)
        view = self.standing()
        if view.started_at is not None and view.finished_at is not None:
            took = (view.finished_at - view.started_at).total_seconds() * 1000
            observe(self._registries.meter, DURATION_MS, took)
        fields = of_job(begun.facts, events.COMPLETED)
        _log.info("Enrichment has ended", status=evaluation.status, **{**fields, "error_message": evaluation.error})

    def _now(self) -> datetime:
        return self._clock.now()
