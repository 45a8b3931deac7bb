"""Judge one control point again, with a person's instructions: it alone is replaced, and its step scored anew."""

from dataclasses import replace
from datetime import datetime

from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.prompt import StepTask
from automation_pipeline.audits.domain.rerun import Rerun, only_point
from automation_pipeline.audits.domain.review import replace_control_point
from automation_pipeline.audits.domain.step_result import StepResult, StoredStep
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.stages.judge_again import Way, judge_again
from automation_pipeline.audits.store.steps import save_finding
from automation_pipeline.storage.database import Database, Session


async def rerun_control_point(rerun: Rerun, *, database: Database, judge: Judge) -> dict[str, object]:
    """As `judge_again` promises. Which control point it is, the rerun's place says."""
    place = rerun.place
    index = place.point
    assert index is not None  # noqa: S101  a rerun without one is `rerun_step`

    def asked(task: StepTask, stored: StoredStep) -> StepTask:
        step, previous = only_point(task.step, stored.finding, index)
        return replace(task, step=step, previous=previous)

    def save(session: Session, stored: StoredStep, result: StepResult, _now: datetime) -> StepFinding:
        [point] = result.finding.points
        after = replace_control_point(stored.finding, stored.weight, index, point)
        stats = stored.stats + result.gated.stats
        save_finding(session, place.audit_id, place.position, after, result.usage, stats)
        return after

    return await judge_again(rerun, Way(asked, save), database=database, judge=judge)
