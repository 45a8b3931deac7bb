"""Judge a whole step again, with a person's instructions: what is found replaces what was found."""

from dataclasses import replace
from datetime import datetime

from automation_pipeline.audits.domain.derivation import clamped
from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.rerun import Rerun
from automation_pipeline.audits.domain.step_result import StepResult, StoredStep
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.stages.judge_again import Way, judge_again
from automation_pipeline.audits.store.steps import save_step
from automation_pipeline.storage.database import Database, Session


async def rerun_step(rerun: Rerun, *, database: Database, judge: Judge) -> dict[str, object]:
    """As `judge_again` promises."""

    def save(session: Session, stored: StoredStep, result: StepResult, now: datetime) -> StepFinding:
        after = replace(result.finding, score=clamped(result.finding.score, stored.weight))
        kept = replace(result, gated=replace(result.gated, finding=after))
        save_step(session, rerun.place.audit_id, kept, now)
        return after

    return await judge_again(rerun, Way(lambda task, _stored: task, save), database=database, judge=judge)
