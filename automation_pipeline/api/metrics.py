"""Metrics for Prometheus."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, groupby
from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from automation_pipeline.audits.queries.audits import unfinished_audits
from automation_pipeline.automation.queries.runs import count_runs, failed_notifications
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.metrics import BOUNDS_MS, BUCKETS, bucket_metric, sum_metric
from automation_pipeline.enrichment.models import (
    CALLS,
    DURATION_MS,
    ENDED_JOBS,
    LATENCY_MS,
    LOST_LEASES,
    RATE_LIMITED,
    REQUESTS,
)
from automation_pipeline.enrichment.queries.requests import enrichments_by_status, stale_backlog
from automation_pipeline.enrichment.sources import source_statuses
from automation_pipeline.org_jobs.events import (
    ENDED_RUNS,
    FIRE_LATENCY_MS,
    FIRES,
    RETRIES,
    RUN_DURATION_MS,
    STALE_RUNS,
)
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.models.states import ScheduleState
from automation_pipeline.org_jobs.queries.health import (
    ActiveRuns,
    active_runs,
    due_schedules,
    schedules_by_state,
)
from automation_pipeline.pricing.models.runs import APPLY_MS, QUEUE_MS, success_rate
from automation_pipeline.pricing.models.shop import CircuitState
from automation_pipeline.pricing.monitoring import (
    blocked_variants,
    circuits,
    health_of_projects,
    mismatched_prices,
    queue_age_seconds,
)
from automation_pipeline.pricing.rules.monitoring import MismatchSeverity, ProjectHealth
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.monitoring import (
    DAEMON,
    MetricValue,
    all_metrics,
    seconds_since_heartbeat,
)
from automation_pipeline.storage.outbox import outbox_status
from automation_pipeline.storage.run_requests import waiting_requests
from automation_pipeline.transcription.queries.runs import waiting_tasks


@dataclass(frozen=True)
class Sample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Gauge:
    """A counter never decreases; its name ends in `_total`."""

    name: str
    words: str
    samples: Sequence[Sample]
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True)
class Histogram:
    """`counts` are cumulative: how many are at most each of `bounds`, and the total last."""

    name: str
    words: str
    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


def single(name: str, words: str, value: float) -> Gauge:
    return Gauge(name, words, (Sample({}, value),))


# Counted as the work goes on; see `storage.metrics`.
ENRICHMENT_WORDS = {
    CALLS: "What sources came to in enrichments, after their retries",
    ENDED_JOBS: "Enrichments that have ended",
    RATE_LIMITED: "Calls that a source refused for coming too fast",
    REQUESTS: "Requests for a company, by outcome",
    LOST_LEASES: "Workers of enrichments that were lost, and asked for again",
}
ENRICHMENT_SPREADS = {
    DURATION_MS: "How long enrichments took, from their first worker to their end",
    LATENCY_MS: "How long sources took to answer, with their retries",
}


def enrichment_gauges(session: Session, now: datetime) -> Iterator[Gauge]:
    by_status = [
        Sample({"status": status}, count)
        for status, count in enrichments_by_status(session).items()
    ]
    yield Gauge("enrichment_status", "Companies by how their enrichment stands", by_status)
    backlog = stale_backlog(session)
    yield single(
        "enrichment_stale_backlog",
        "Expired snapshots without a refresh under way",
        backlog,
    )
    sources = source_statuses(session).values()
    resting = [Sample({"source": one.source}, int(one.is_resting(now))) for one in sources]
    yield Gauge(
        "enrichment_source_resting", "1 for a source that is left alone for a while", resting
    )
    calls = [Sample({"source": one.source}, one.used_on(now.date())) for one in sources]
    yield Gauge("enrichment_source_calls_today", "Calls of a source since midnight UTC", calls)


# Counted as the work is done; see `storage.metrics`.
ORG_JOBS_WORDS = {
    FIRES: "Due times of schedules that were decided upon, by outcome and why they were left out",
    RETRIES: "Attempts of jobs that are tried again",
    STALE_RUNS: "Attempts of jobs that ended because their heartbeat stopped",
    ENDED_RUNS: "Runs of jobs that have ended for good",
}
# The same, of lengths of time.
ORG_JOBS_SPREADS = {
    FIRE_LATENCY_MS: "From when jobs were due until they were dispatched",
    RUN_DURATION_MS: "How long attempts of jobs took",
}


def org_job_gauges(session: Session, now: datetime) -> Iterator[Gauge]:
    due, states = due_schedules(session, now), schedules_by_state(session)
    yield single(
        "schedules_due_backlog", "Schedules that are due and were not decided upon yet", due.count
    )
    yield single(
        "schedules_oldest_due_age_seconds",
        "Since the oldest of those is due; 0: there is none",
        due.age_seconds,
    )
    by_state = [Sample({"state": state}, states.get(state, 0)) for state in ScheduleState]
    yield Gauge("schedules_state", "Schedules by their state", by_state)
    yield from _of_runs(active_runs(session))


def _of_runs(active: Sequence[ActiveRuns]) -> Iterator[Gauge]:
    """The page is public: it names no organisation."""
    waiting, queues, running = Counter[str](), Counter[str](), 0
    for one in active:
        waiting[one.performer] += one.waiting
        queues[one.org_id] += one.waiting
        running += one.running
    by_performer = [Sample({"performer": performer}, waiting[performer]) for performer in Performer]
    yield Gauge(
        "org_jobs_queue_depth", "Job runs that wait for their start or a retry", by_performer
    )
    yield single(
        "org_jobs_queue_depth_max",
        "The same of the organisation that has most of them",
        max(queues.values(), default=0),
    )
    yield single("org_jobs_running", "Runs of jobs at work", running)


# Counted by the worker as it works; see `storage.metrics`.
PRICING_WORDS = {
    "rules_apply_count_total": "Starts and retries of applying runs",
    "rules_rollback_count_total": "Prices that were taken back",
    "rules_429_count_total": "Calls that the shop refused for coming too fast",
    "rules_target_retries_total": "Targets that were tried again, by the worker itself or by hand",
    "rules_illegal_moves_total": "Changes of state that were asked for and are not allowed",
}
# The same, of lengths of time.
PRICING_SPREADS = {
    APPLY_MS: "How long runs took to be applied, until their first end",
    QUEUE_MS: "How long runs that have ended had waited in the queue",
}


def pricing_gauges(session: Session, now: datetime) -> Iterator[Gauge]:
    blocked, healths = blocked_variants(session), health_of_projects(session, now)
    kept_out = [Sample({"project": project}, count) for project, count in blocked.items()]
    yield Gauge(
        "rules_guardrail_blocked_total",
        "Variants that guardrails kept out of runs",
        kept_out,
        "counter",
    )
    yield _success("rules_apply_success_rate", healths)
    waiting = dict.fromkeys(blocked, 0) | {
        project: health.dead_letters for project, health in healths.items()
    }
    letters = [Sample({"project": project}, count) for project, count in waiting.items()]
    yield Gauge("rules_dlq_size", "Failed targets without an acknowledgement", letters)
    mismatched = mismatched_prices(session, now)
    found = [
        Sample({"severity": severity}, mismatched.get(severity, 0)) for severity in MismatchSeverity
    ]
    yield Gauge(
        "rules_reconcile_mismatch", "Prices that the last check of each run found changed", found
    )
    states = [
        Sample({"shop": shop, "state": state}, int(state is known))
        for shop, known in circuits(session).items()
        for state in CircuitState
    ]
    yield Gauge("rules_circuit_state", "1 for the state that a shop's circuit is in", states)
    yield single(
        "rules_queue_age_seconds",
        "Since the oldest queued run was queued",
        queue_age_seconds(session, now),
    )


def _success(name: str, healths: dict[str, ProjectHealth]) -> Gauge:
    """Without projects in which nothing was tried."""
    rates = {
        project: success_rate(health.applied, health.failed) for project, health in healths.items()
    }
    samples = [
        Sample({"project": project}, float(rate))
        for project, rate in rates.items()
        if rate is not None
    ]
    return Gauge(name, "Applied share of the targets of runs that ended within the hour", samples)


def measures_of(spreads: Iterable[str]) -> frozenset[str]:
    """The names of the counters of a histogram."""
    return frozenset(measure(name) for name in spreads for measure in (bucket_metric, sum_metric))


def histograms_of(
    spreads: Mapping[str, str], measures: Iterable[MetricValue]
) -> tuple[Histogram, ...]:
    """Each histogram comes with its description."""
    counted = {(one.name, one.labels): one.value for one in measures}
    found: list[Histogram] = []
    for name, words in spreads.items():
        by_bucket = [
            counted.get((bucket_metric(name), f'le="{bucket}"'), 0.0) for bucket in BUCKETS
        ]
        counts = tuple(accumulate(round(count) for count in by_bucket))
        total = counted.get((sum_metric(name), ""), 0.0)
        found.append(Histogram(name, words, BOUNDS_MS, counts, total))
    return tuple(found)


Name = TypeVar("Name", bound=str)

_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_WORDS = {
    "provider_calls_total": "Calls of providers by the status that they answered",
    "limiter_waits_total": "Calls that waited for a place under a provider's cap",
    "limiter_wait_seconds_total": "How long calls waited for a place under a provider's cap",
    "provider_call_seconds_total": "How long calls of providers took",
    "phase_seconds_total": "How long runs were in each phase",
    "phases_total": "Phases that runs have been through",
    **PRICING_WORDS,
    **ORG_JOBS_WORDS,
    **ENRICHMENT_WORDS,
}
_SPREADS = {**PRICING_SPREADS, **ORG_JOBS_SPREADS, **ENRICHMENT_SPREADS}
_SPREAD_MEASURES = measures_of(_SPREADS)


def gauges(services: Services) -> tuple[Gauge, ...]:
    """Each name appears once."""
    with services.database.reading() as session:
        ours = (
            *_runs(session),
            *_queues(session),
            *_outbox(session),
            *_daemon(session),
            *_counters(session),
        )
        now = services.clock.now()
        result = (
            *pricing_gauges(session, now),
            *org_job_gauges(session, now),
            *enrichment_gauges(session, now),
        )
        return (*ours, *(gauge for gauge in result if gauge.samples))


def histograms(services: Services) -> tuple[Histogram, ...]:
    with services.database.reading() as session:
        return histograms_of(_SPREADS, all_metrics(session))


def _runs(session: Session) -> Iterator[Gauge]:
    counts = count_runs(session)
    yield Gauge(
        "automation_runs", "Runs that are stored, by status", _samples("status", counts.runs)
    )
    yield Gauge(
        "automation_fiches", "Fiches of ended runs, by outcome", _samples("outcome", counts.fiches)
    )
    failed = failed_notifications(session)
    yield single(
        "automation_notifications_failed", "Messages about runs that were not delivered", failed
    )


def _queues(session: Session) -> Iterator[Gauge]:
    depths = {
        "run_requests": waiting_requests(session),
        "transcription_tasks": waiting_tasks(session),
        "audits": unfinished_audits(session),
    }
    yield Gauge(
        "automation_queue_depth",
        "What waits, or is unfinished, by queue",
        _samples("queue", depths),
    )


def _outbox(session: Session) -> Iterator[Gauge]:
    status = outbox_status(session)
    yield single("automation_outbox_waiting", "Events that wait to leave", status.waiting)
    yield single(
        "automation_outbox_parked",
        "Events that were given up and need an operator",
        status.parked,
    )
    yield single(
        "automation_outbox_lag_seconds", "Age of the oldest event that waits", status.lag_seconds
    )


def _daemon(session: Session) -> Iterator[Gauge]:
    silence = seconds_since_heartbeat(session, DAEMON)
    if silence is not None:
        yield single(
            "automation_daemon_silence_seconds",
            "Since Dagster's daemon last ticked",
            max(0.0, silence),
        )


def _counters(session: Session) -> Iterator[Gauge]:
    """The counters of all processes, except those of histograms."""
    result = (one for one in all_metrics(session) if one.name not in _SPREAD_MEASURES)
    measures = sorted(result, key=lambda one: (one.name, one.labels))
    for name, of_it in groupby(measures, key=lambda one: one.name):
        samples = [Sample(labels_of(one.labels), one.value) for one in of_it]
        yield Gauge(name, _WORDS.get(name, name.replace("_", " ")), samples, "counter")


def labels_of(written: str) -> Mapping[str, str]:
    """Of `provider="crm",status="200"`, as Prometheus writes them."""
    return {
        name: _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value)
        for name, value in _LABEL.findall(written)
    }


def _samples(label: str, counts: Mapping[Name, int]) -> Sequence[Sample]:
    return [Sample({label: str(name)}, count) for name, count in counts.items()]


_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def exposition(gauges: Sequence[Gauge], histograms: Sequence[Histogram] = ()) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted(gauges, histograms))
    return generate_latest(registry)


class _Counted(Collector):
    """The shared counters of all processes."""

    def __init__(self, gauges: Sequence[Gauge], histograms: Sequence[Histogram]) -> None:
        self._gauges, self._histograms = gauges, histograms

    def collect(self) -> Iterable[Metric]:
        yield from map(_family, self._gauges)
        yield from map(_spread, self._histograms)


def _family(gauge: Gauge) -> Metric:
    names = tuple(dict.fromkeys(name for sample in gauge.samples for name in sample.labels))
    family = _FAMILIES[gauge.kind](gauge.name, gauge.words, labels=names)
    for sample in gauge.samples:
        family.add_metric([sample.labels.get(name, "") for name in names], sample.value)
    return family


def _spread(histogram: Histogram) -> Metric:
    bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
    family = HistogramMetricFamily(histogram.name, histogram.words)
    family.add_metric([], list(zip(bounds, histogram.counts, strict=True)), histogram.total)
    return family
