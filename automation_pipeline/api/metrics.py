"""The metrics page for Prometheus. docs/operations.md describes the metrics."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate, groupby
from typing import TypeVar

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
from automation_pipeline.core.metrics import BUCKETS, bucket_metric, sum_metric
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
from automation_pipeline.org_jobs.models.jobs import Performer, ScheduleState
from automation_pipeline.org_jobs.queries.health import (
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
from automation_pipeline.pricing.rules.monitoring import MismatchSeverity
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

Name = TypeVar("Name", bound=str)

# The counters that processes add to the database while they work, with their descriptions.
COUNTERS = {
    "provider_calls_total": "Calls of providers by the status of the response",
    "limiter_waits_total": "Calls that waited because of a provider's limit",
    "limiter_wait_seconds_total": "Time that calls waited because of a provider's limit",
    "provider_call_seconds_total": "Total duration of calls of providers",
    "phase_seconds_total": "Time that runs spent in each phase",
    "phases_total": "Phases that runs have completed",
    "rules_apply_count_total": "Pricing runs that started to apply prices, retries included",
    "rules_rollback_count_total": "Prices that were rolled back",
    "rules_429_count_total": "Calls that the shop refused because of its rate limit",
    "rules_target_retries_total": "Retries of targets, automatic or manual",
    "rules_illegal_moves_total": "Forbidden state transitions that were refused",
    FIRES: "Due times with a decision, by outcome and reason",
    RETRIES: "Attempts of jobs that are retried",
    STALE_RUNS: "Attempts of jobs that ended because their heartbeat stopped",
    ENDED_RUNS: "Job runs with a final result",
    CALLS: "Results of sources in enrichments, after their retries",
    ENDED_JOBS: "Enrichments that have ended",
    RATE_LIMITED: "Calls that a source refused because of its rate limit",
    REQUESTS: "Requests for a company, by outcome",
    LOST_LEASES: "Workers of enrichments that were lost and replaced",
}
HISTOGRAMS = {
    APPLY_MS: "Duration of pricing runs from start to first end",
    QUEUE_MS: "Time of ended pricing runs in the queue",
    FIRE_LATENCY_MS: "Time from the due time of a job until its dispatch",
    RUN_DURATION_MS: "Duration of attempts of jobs",
    DURATION_MS: "Duration of enrichments from the first worker to the end",
    LATENCY_MS: "Duration of calls of sources, retries included",
}
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def exposition(services: Services) -> bytes:
    """Return the metrics page. It is public, so it names no organisation."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Rows(services))
    return generate_latest(registry)


class _Rows(Collector):
    """Reads all metrics from the database, where all processes count."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        now = self._services.clock.now()
        with self._services.database.reading() as session:
            counted = all_metrics(session)
            found = [
                *_automation(session),
                *_counters(counted),
                *_pricing(session, now),
                *_org_jobs(session, now),
                *_enrichment(session, now),
                *_histograms(counted),
            ]
        return [family for family in found if family.samples]


def _single(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(name, description, value=value)


def _by(label: str, name: str, description: str, values: Mapping[Name, float]) -> Metric:
    """A gauge with one value per value of a label."""
    family = GaugeMetricFamily(name, description, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _automation(session: Session) -> Iterator[Metric]:
    counts, outbox = count_runs(session), outbox_status(session)
    yield _by("status", "automation_runs", "Stored runs by status", counts.runs)
    yield _by("outcome", "automation_fiches", "Fiches of ended runs by outcome", counts.fiches)
    yield _single(
        "automation_notifications_failed",
        "Messages about runs that could not be delivered",
        failed_notifications(session),
    )
    depths = {
        "run_requests": waiting_requests(session),
        "transcription_tasks": waiting_tasks(session),
        "audits": unfinished_audits(session),
    }
    yield _by("queue", "automation_queue_depth", "Waiting or unfinished work by queue", depths)
    yield _single("automation_outbox_waiting", "Events that are not published yet", outbox.waiting)
    yield _single(
        "automation_outbox_parked", "Events that failed and wait for an operator", outbox.parked
    )
    yield _single(
        "automation_outbox_lag_seconds",
        "Age of the oldest event that is not published",
        outbox.lag_seconds,
    )
    silence = seconds_since_heartbeat(session, DAEMON)
    if silence is not None:
        yield _single(
            "automation_daemon_silence_seconds",
            "Time since Dagster's daemon last ticked",
            max(0.0, silence),
        )


def _pricing(session: Session, now: datetime) -> Iterator[Metric]:
    blocked, healths = blocked_variants(session), health_of_projects(session, now)
    kept_out = CounterMetricFamily(
        "rules_guardrail_blocked_total",
        "Variants that guardrails blocked",
        labels=["project"],
    )
    for project, count in blocked.items():
        kept_out.add_metric([project], count)
    yield kept_out
    rates = {
        project: success_rate(health.applied, health.failed) for project, health in healths.items()
    }
    yield _by(
        "project",
        "rules_apply_success_rate",
        "Applied share of the targets of runs that ended within the last hour",
        {project: float(rate) for project, rate in rates.items() if rate is not None},
    )
    letters = {project: health.dead_letters for project, health in healths.items()}
    yield _by(
        "project",
        "rules_dlq_size",
        "Failed targets without an acknowledgement",
        dict.fromkeys(blocked, 0) | letters,
    )
    mismatched = mismatched_prices(session, now)
    yield _by(
        "severity",
        "rules_reconcile_mismatch",
        "Prices that the last check of each run found changed",
        {severity: mismatched.get(severity, 0) for severity in MismatchSeverity},
    )
    states = GaugeMetricFamily(
        "rules_circuit_state",
        "1 for the current state of a shop's circuit",
        labels=["shop", "state"],
    )
    for shop, known in circuits(session).items():
        for state in CircuitState:
            states.add_metric([shop, state], int(state is known))
    yield states
    yield _single(
        "rules_queue_age_seconds",
        "Time since the oldest queued run was queued",
        queue_age_seconds(session, now),
    )


def _org_jobs(session: Session, now: datetime) -> Iterator[Metric]:
    due, states = due_schedules(session, now), schedules_by_state(session)
    yield _single("schedules_due_backlog", "Due schedules without a decision yet", due.count)
    yield _single(
        "schedules_oldest_due_age_seconds",
        "Age of the oldest of them; 0 if there is none",
        due.age_seconds,
    )
    yield _by(
        "state",
        "schedules_state",
        "Schedules by state",
        {state: states.get(state, 0) for state in ScheduleState},
    )
    waiting = Counter[str](dict.fromkeys(Performer, 0))
    queues, running = Counter[str](), 0
    for one in active_runs(session):
        waiting[one.performer] += one.waiting
        queues[one.org_id] += one.waiting
        running += one.running
    yield _by(
        "performer",
        "org_jobs_queue_depth",
        "Job runs that wait for their start or a retry",
        waiting,
    )
    yield _single(
        "org_jobs_queue_depth_max",
        "The same for the organisation with the longest queue",
        max(queues.values(), default=0),
    )
    yield _single("org_jobs_running", "Job runs in progress", running)


def _enrichment(session: Session, now: datetime) -> Iterator[Metric]:
    sources = source_statuses(session).values()
    yield _by(
        "status",
        "enrichment_status",
        "Companies by the status of their enrichment",
        enrichments_by_status(session),
    )
    yield _single(
        "enrichment_stale_backlog",
        "Expired snapshots without an open refresh",
        stale_backlog(session),
    )
    yield _by(
        "source",
        "enrichment_source_resting",
        "1 for a source that is not called for a while",
        {one.source: int(one.is_resting(now)) for one in sources},
    )
    yield _by(
        "source",
        "enrichment_source_calls_today",
        "Calls of a source since midnight UTC",
        {one.source: one.used_on(now.date()) for one in sources},
    )


def _counters(counted: Iterable[MetricValue]) -> Iterator[Metric]:
    """Yield the counters, except those of histograms."""
    of_histograms = {
        measure(name) for name in HISTOGRAMS for measure in (bucket_metric, sum_metric)
    }
    in_order = sorted(
        (one for one in counted if one.name not in of_histograms),
        key=lambda one: (one.name, one.labels),
    )
    for name, group in groupby(in_order, key=lambda one: one.name):
        values = [(labels_of(one.labels), one.value) for one in group]
        labels = tuple(dict.fromkeys(label for given, _ in values for label in given))
        family = CounterMetricFamily(
            name, COUNTERS.get(name, name.replace("_", " ")), labels=labels
        )
        for given, value in values:
            family.add_metric([given.get(label, "") for label in labels], value)
        yield family


def _histograms(counted: Iterable[MetricValue]) -> Iterator[Metric]:
    """Yield the histograms. The database counts each duration in one bucket; Prometheus expects
    cumulative counts."""
    values = {(one.name, one.labels): one.value for one in counted}
    for name, description in HISTOGRAMS.items():
        counts = accumulate(
            round(values.get((bucket_metric(name), f'le="{bucket}"'), 0.0)) for bucket in BUCKETS
        )
        family = HistogramMetricFamily(name, description)
        total = values.get((sum_metric(name), ""), 0.0)
        family.add_metric([], list(zip(BUCKETS, counts, strict=True)), total)
        yield family


def labels_of(text: str) -> Mapping[str, str]:
    """Parse labels in Prometheus' format: `provider="crm",status="200"`."""
    return {
        name: _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value)
        for name, value in _LABEL.findall(text)
    }
