"""Runs with dead letters, for the tests of them."""

from datetime import timedelta

from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline_tests.pricing.bench import Bench


def failing(bench: Bench, kinds: dict[str, str], *, hours: float = 0.0, **rule: object) -> RuleRun:
    """A run of which these variants have failed so, all of them so long ago."""
    run = bench.queued(bench.rule(**rule))
    for variant_id in kinds:
        bench.shop.refuse(variant_id)
    run = bench.work(run)
    at = bench.clock.now() - timedelta(hours=hours)
    for target in bench.targets(run.id):
        kind = kinds.get(str(target.variant_id))
        if kind is not None:
            retryable = kind in {"server", "network", "rate_limit", "cancelled"}
            bench.set_target(target.id, error_type=kind, error_retryable=retryable, last_attempt=at)
    return run


def dead_targets(bench: Bench, run: RuleRun) -> list[int]:
    return [target.id for target in bench.targets(run.id) if target.status == "FAILED"]
