"""The numbers of enrichment on the metrics page, counted from rows: as many queries whatever there is to count."""

from collections.abc import Iterator
from datetime import datetime

from automation_pipeline.enrichment.domain.measures import (
    ASKED,
    CALLS,
    DURATION_MS,
    ENDED_JOBS,
    LATENCY_MS,
    LOST_LEASES,
    RATE_LIMITED,
)
from automation_pipeline.enrichment.store.gauges import enrichments_by_status, stale_backlog
from automation_pipeline.enrichment.store.views import source_views
from automation_pipeline.storage.database import Session
from automation_pipeline.vitals.gauge import Gauge, Sample, single

# Counted as the work goes on; see `storage.measures`.
WORDS = {
    CALLS: "What sources came to in enrichments, after their retries",
    ENDED_JOBS: "Enrichments that have ended",
    RATE_LIMITED: "Calls that a source refused for coming too fast",
    ASKED: "Wishes for a company, by what became of them",
    LOST_LEASES: "Workers of enrichments that were lost, and asked for again",
}
SPREADS = {
    DURATION_MS: "How long enrichments took, from their first worker to their end",
    LATENCY_MS: "How long sources took to answer, with their retries",
}


def enrichment_gauges(session: Session, now: datetime) -> Iterator[Gauge]:
    by_status = [Sample({"status": status}, count) for status, count in enrichments_by_status(session).items()]
    yield Gauge("enrichment_status", "Companies by how their enrichment stands", by_status)
    backlog = stale_backlog(session)
    yield single("enrichment_stale_backlog", "Snapshots whose time is over and that nobody refreshes yet", backlog)
    sources = source_views(session, now)
    resting = [Sample({"source": one.source_api}, int(one.resting_until is not None)) for one in sources]
    yield Gauge("enrichment_source_resting", "1 for a source that is left alone for a while", resting)
    calls = [Sample({"source": one.source_api}, one.calls_today) for one in sources]
    yield Gauge("enrichment_source_calls_today", "Calls of a source since midnight UTC", calls)
