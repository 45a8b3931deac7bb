"""Steps on other hosts that have fallen silent: their run is told dead, and Dagster begins it anew."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache

from dagster import DagsterInstance, DagsterRunStatus

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.logs import log
from automation_pipeline.orchestration.aftermath import ENDED
from automation_pipeline.storage.database import DatabaseNotReadyError
from automation_pipeline.storage.step_beats import RUN_WORKER, StepBeat, beats, forget_steps

_log = log(__name__)


def beats_of_steps(services: Services) -> list[StepBeat]:
    """Nobody's on a schema that is older than they are: this version works on it as the last one did."""
    try:
        with services.database.reading() as session:
            return beats(session)
    except DatabaseNotReadyError as error:
        _say_once(str(error))
        return []


@cache
def _say_once(sentence: str) -> None:
    _log.warning("Lost steps are not looked for: %s", sentence)


def lost_steps(steps: Sequence[StepBeat], patience: timedelta) -> list[StepBeat]:
    """One a run: the longest silent."""
    lost = {step.dagster_run_id: step for step in steps[::-1] if step.now - step.beat_at > patience}
    return list(lost.values())


def report_lost(step: StepBeat, instance: DagsterInstance, services: Services) -> str | None:
    """What an ended run has left behind is cleared away."""
    run = instance.get_run_by_id(step.dagster_run_id)
    if run is None or run.status in ENDED:
        with services.database.transaction() as session:
            forget_steps(session, step.dagster_run_id)
        return None
    if run.status is not DagsterRunStatus.STARTED:
        return None
    what = "The process of the run" if step.step_key == RUN_WORKER else f"Step {step.step_key}"
    message = f"{what} on {step.worker} gave no sign of life since {step.beat_at:%Y-%m-%d %H:%M:%S} UTC."
    instance.report_run_failed(run, message)
    return f"Reported {run.run_id} dead: {message}"
