"""Count how long a run that has just ended has waited and taken."""

from automation_pipeline.core.meter import Meter
from automation_pipeline.core.spread import observe
from automation_pipeline.pricing.domain.rule_run import RuleRun
from automation_pipeline.pricing.domain.run_result import RunTimes
from automation_pipeline.pricing.domain.run_times import APPLY_MS, QUEUE_MS


def tell_times(meter: Meter, run: RuleRun) -> None:
    """Once a run: a retry begins whenever somebody asks for it, and the pause before it is nobody's work."""
    if run.retry_cycle:
        return
    times = RunTimes(run.queued_at, run.started_at, run.finished_at)
    for spread, took in ((APPLY_MS, times.apply_ms), (QUEUE_MS, times.queue_ms)):
        if took is not None:
            observe(meter, spread, took)
