"""The numbers of the metrics page, counted when it is asked for: a constant number of cheap queries."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from automation_pipeline.audits.store.gauges import unfinished_audits
from automation_pipeline.automation.store.gauges import count_runs, failed_notifications
from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.measures import all_measures
from automation_pipeline.storage.outbox_gauges import outbox_standing
from automation_pipeline.storage.pulses import DAEMON, seconds_since_beat
from automation_pipeline.storage.run_requests import waiting_requests
from automation_pipeline.transcription.store.gauges import waiting_tasks
from automation_pipeline.vitals import enrichment, org_jobs, pricing
from automation_pipeline.vitals.enrichment import enrichment_gauges
from automation_pipeline.vitals.gauge import Gauge, Histogram, Sample, single
from automation_pipeline.vitals.org_jobs import org_job_gauges
from automation_pipeline.vitals.pricing import pricing_gauges
from automation_pipeline.vitals.spreads import histograms_of, measures_of

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
    **pricing.WORDS,
    **org_jobs.WORDS,
    **enrichment.WORDS,
}
_SPREADS = {**pricing.SPREADS, **org_jobs.SPREADS, **enrichment.SPREADS}
_SPREAD_MEASURES = measures_of(_SPREADS)


def gauges(services: Services) -> tuple[Gauge, ...]:
    """Names come once each."""
    with services.database.reading() as session:
        ours = (*_runs(session), *_queues(session), *_outbox(session), *_daemon(session), *_counters(session))
        now = services.clock.now()
        told = (*pricing_gauges(session, now), *org_job_gauges(session, now), *enrichment_gauges(session, now))
        return (*ours, *(gauge for gauge in told if gauge.samples))


def histograms(services: Services) -> tuple[Histogram, ...]:
    with services.database.reading() as session:
        return histograms_of(_SPREADS, all_measures(session))


def _runs(session: Session) -> Iterator[Gauge]:
    counts = count_runs(session)
    yield Gauge("automation_runs", "Runs that are stored, by status", _samples("status", counts.runs))
    yield Gauge("automation_fiches", "Fiches of ended runs, by outcome", _samples("outcome", counts.fiches))
    failed = failed_notifications(session)
    yield single("automation_notifications_failed", "Messages about runs that nobody received", failed)


def _queues(session: Session) -> Iterator[Gauge]:
    depths = {
        "run_requests": waiting_requests(session),
        "transcription_tasks": waiting_tasks(session),
        "audits": unfinished_audits(session),
    }
    yield Gauge("automation_queue_depth", "What waits, or is unfinished, by queue", _samples("queue", depths))


def _outbox(session: Session) -> Iterator[Gauge]:
    standing = outbox_standing(session)
    yield single("automation_outbox_waiting", "Events that wait to leave", standing.waiting)
    yield single("automation_outbox_parked", "Events that were given up and wait for somebody", standing.parked)
    yield single("automation_outbox_lag_seconds", "Age of the oldest event that waits", standing.lag_seconds)


def _daemon(session: Session) -> Iterator[Gauge]:
    silence = seconds_since_beat(session, DAEMON)
    if silence is not None:
        yield single("automation_daemon_silence_seconds", "Since Dagster's daemon last ticked", max(0.0, silence))


def _counters(session: Session) -> Iterator[Gauge]:
    """What all processes have added to, except what is told as histograms."""
    told = (one for one in all_measures(session) if one.name not in _SPREAD_MEASURES)
    measures = sorted(told, key=lambda one: (one.name, one.labels))
    for name, of_it in groupby(measures, key=lambda one: one.name):
        samples = [Sample(labels_of(one.labels), one.value) for one in of_it]
        yield Gauge(name, _WORDS.get(name, name.replace("_", " ")), samples, "counter")


def labels_of(written: str) -> Mapping[str, str]:
    """Of `provider="crm",status="200"`, as Prometheus writes them."""
    return {name: _ESCAPED.sub(_plain, value) for name, value in _LABEL.findall(written)}


def _plain(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _samples(label: str, counts: Mapping[Name, int]) -> Sequence[Sample]:
    return [Sample({label: str(name)}, count) for name, count in counts.items()]
