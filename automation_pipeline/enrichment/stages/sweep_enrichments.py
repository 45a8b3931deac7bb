"""Look after what nobody asks for: what is old grows stale, what is due is refreshed, lost workers are followed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.domain.measures import LOST_LEASES
from automation_pipeline.enrichment.domain.vocabulary import REQUIRED_SOURCES, JobState, SourceApi
from automation_pipeline.enrichment.ports import Registries
from automation_pipeline.enrichment.store.sources import SourceStanding, standings
from automation_pipeline.enrichment.store.sweeping import ask_again, grow_stale, open_jobs, refresh_due
from automation_pipeline.storage.database import Database

# Of a source's day this share is kept for those who ask.
KEPT_FOR_PEOPLE = 0.2


@dataclass(frozen=True)
class SweepReport:
    stale: int = 0
    refreshed: int = 0
    asked_again: int = 0

    def __str__(self) -> str:
        again = f"{self.asked_again} workers were asked for again"
        return f"{self.stale} grew stale; {self.refreshed} are refreshed; {again}."


def sweep_enrichments(*, registries: Registries, database: Database, clock: Clock, limit: int = 50) -> SweepReport:
    """Each part bounded by the limit, and what is refreshed by what the sources' days have left."""
    knobs, now = registries.knobs, clock.now()
    with database.transaction() as session:
        again = ask_again(session, now, knobs.lock_seconds, limit)
    lost = again.count(JobState.RUNNING)
    if lost:
        registries.meter.count(LOST_LEASES, lost)
    with database.transaction() as session:
        stale = grow_stale(session, now, knobs.freshness, limit)
    with database.reading() as session:
        left = _left(registries, standings(session), open_jobs(session), now, limit)
    with database.transaction() as session:
        refreshed = refresh_due(session, now, left) if left else 0
    return SweepReport(stale, refreshed, len(again))


def _left(
    registries: Registries, known: Mapping[SourceApi, SourceStanding], planned: int, now: datetime, limit: int
) -> int:
    """None while a source rests without which nothing is a success. `planned` calls are about to be made."""
    if any(known[api].is_resting(now) for api in REQUIRED_SOURCES):
        return 0
    limited = ((api, one.calls_a_day) for api, one in registries.sources.items() if one.calls_a_day is not None)
    rest = [int(calls * (1 - KEPT_FOR_PEOPLE)) - known[api].used_on(now.date()) - planned for api, calls in limited]
    return max(min([limit, *rest]), 0)
