"""The numbers of pricing on the metrics page, counted from rows: as many queries whatever there is to count."""

from collections.abc import Iterator
from datetime import datetime

from automation_pipeline.pricing.domain.alerts import Health
from automation_pipeline.pricing.domain.circuit import CircuitState
from automation_pipeline.pricing.domain.reconciliation import MismatchSeverity
from automation_pipeline.pricing.domain.run_result import success_rate
from automation_pipeline.pricing.domain.run_times import APPLY_MS, QUEUE_MS
from automation_pipeline.pricing.store.gauges import (
    blocked_variants,
    circuits,
    mismatched_prices,
    queue_age_seconds,
)
from automation_pipeline.pricing.store.health import health_of_projects
from automation_pipeline.storage.database import Session
from automation_pipeline.vitals.gauge import Gauge, Sample, single

# Counted by the worker as it works; see `storage.measures`.
WORDS = {
    "rules_apply_count_total": "Times that runs were begun to be applied, or tried again",
    "rules_rollback_count_total": "Prices that were taken back",
    "rules_429_count_total": "Calls that the shop refused for coming too fast",
    "rules_target_retries_total": "Targets that were tried again, by the worker itself or by hand",
    "rules_illegal_moves_total": "Changes of state that were asked for and are not allowed",
}
# The same, of lengths of time.
SPREADS = {
    APPLY_MS: "How long runs took to be applied, until their first end",
    QUEUE_MS: "How long runs that have ended had waited in the queue",
}


def pricing_gauges(session: Session, now: datetime) -> Iterator[Gauge]:
    blocked, healths = blocked_variants(session), health_of_projects(session, now)
    kept_out = [Sample({"project": project}, count) for project, count in blocked.items()]
    yield Gauge("rules_guardrail_blocked_total", "Variants that guardrails kept out of runs", kept_out, "counter")
    yield _success("rules_apply_success_rate", healths)
    waiting = dict.fromkeys(blocked, 0) | {project: health.dead_letters for project, health in healths.items()}
    letters = [Sample({"project": project}, count) for project, count in waiting.items()]
    yield Gauge("rules_dlq_size", "Failed targets that nobody has acknowledged", letters)
    mismatched = mismatched_prices(session, now)
    found = [Sample({"severity": severity}, mismatched.get(severity, 0)) for severity in MismatchSeverity]
    yield Gauge("rules_reconcile_mismatch", "Prices that the last check of each run found changed", found)
    states = [
        Sample({"shop": shop, "state": state}, int(state is known))
        for shop, known in circuits(session).items()
        for state in CircuitState
    ]
    yield Gauge("rules_circuit_state", "1 for the state that a shop's circuit is in", states)
    yield single("rules_queue_age_seconds", "Since the oldest queued run was queued", queue_age_seconds(session, now))


def _success(name: str, healths: dict[str, Health]) -> Gauge:
    """Nothing of a project in which nothing was tried."""
    rates = {project: success_rate(health.applied, health.failed) for project, health in healths.items()}
    samples = [Sample({"project": project}, float(rate)) for project, rate in rates.items() if rate is not None]
    return Gauge(name, "Applied share of the targets of runs that ended within the hour", samples)
