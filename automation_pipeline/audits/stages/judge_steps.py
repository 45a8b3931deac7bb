"""Judge the steps of an audit that are not judged yet, several at a time; each is stored when it ends."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from automation_pipeline.audits.domain import events
from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.chat import Usage
from automation_pipeline.audits.domain.config import AuditStep
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.prompt import StepTask
from automation_pipeline.audits.domain.step_result import StepResult, UnjudgedStep
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.stages.analyse_step import analyse_step
from automation_pipeline.audits.store.audits import FoundAudit, hold_audit
from automation_pipeline.audits.store.calls import Heard
from automation_pipeline.audits.store.steps import missing_steps, positions_judged, save_step
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.pool import work_through
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes


async def judge_steps(found: FoundAudit, heard: Heard, token: int, *, database: Database, judge: Judge) -> None:
    """Under the fence `token`. TransientError when the audit has passed on or ended meanwhile: nothing is written."""
    audit = found.standing

    async def analyse(step: AuditStep) -> StepResult | UnjudgedStep:
        await database.write(partial(tell, step))
        timeline, mode = heard.timeline, found.transcript_mode
        task = StepTask(config=found.config, step=step, timeline=timeline, mode=mode, product=heard.product)
        result = await analyse_step(task, judge=judge)
        return replace(result, usage=result.usage + spent[step.position]) if step.position in spent else result

    def tell(step: AuditStep, session: Session) -> None:
        enqueue(session, [events.step_started(audit, step, database_time(session))])

    judged, spent = _before(audit, database)
    so_far = replace(audit, done=len(judged), failed=0)

    def write(results: Sequence[StepResult | UnjudgedStep]) -> None:
        nonlocal so_far
        errors = sum(isinstance(result, UnjudgedStep) for result in results)
        judged = so_far.done + len(results) - errors
        then = replace(so_far, done=judged, failed=so_far.failed + errors)
        database.write_soon(partial(save, results, then))
        so_far = then

    def save(results: Sequence[StepResult | UnjudgedStep], then: Standing, session: Session) -> None:
        now = database_time(session)
        if not hold_audit(session, audit.audit_id, token, now):
            raise TransientError(f"Audit {audit.audit_id} has passed on to another worker, or has ended.")
        for result in results:
            save_step(session, audit.audit_id, result, now)
            if isinstance(result, UnjudgedStep):
                words = f"Step {result.step.position} could not be judged: {result.error}"
                write_notes(session, audit_note(audit, words, level="error"))
        ended = [events.step_ended(audit, result, now) for result in results]
        enqueue(session, [*ended, events.progress(then, "analysis", now)])

    todo = [step for step in found.config.steps if step.position not in judged]
    await work_through(todo, analyse, write, width=judge.knobs.steps_at_once)


def _before(audit: Standing, database: Database) -> tuple[set[int], dict[int, Usage]]:
    """The positions that earlier attempts judged, and what they spent on the others. `audit` is as the analysis begins:
    nobody else works on it."""
    if audit.done == audit.failed == 0:
        return set(), {}
    with database.reading() as session:
        spent = {step.position: step.usage for step in missing_steps(session, audit.audit_id)}
        return positions_judged(session, audit.audit_id), spent
