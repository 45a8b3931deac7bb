"""Have the model judge again what was judged before, once for a rerun's id. What is asked, and what becomes of the
answer, is for `rerun_step` and `rerun_control_point` to say."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.failures import nothing_to_judge
from automation_pipeline.audits.domain.findings import StepFinding
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.prompt import StepTask
from automation_pipeline.audits.domain.reading_mode import mode_of
from automation_pipeline.audits.domain.rerun import Rerun, checked_instructions, verdict_on
from automation_pipeline.audits.domain.rerun_events import rerun_completed, rerun_failed, rerun_started
from automation_pipeline.audits.domain.step_result import StepResult, StoredStep, UnjudgedStep
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.stages.analyse_step import analyse_step
from automation_pipeline.audits.store.audits import changeable_audit, get_audit, lock_audit
from automation_pipeline.audits.store.calls import heard_of
from automation_pipeline.audits.store.reading import audit_step_document
from automation_pipeline.audits.store.steps import get_step, save_finding
from automation_pipeline.audits.store.summaries import write_summary
from automation_pipeline.audits.store.trails import add_rerun, has_rerun
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes

Document = dict[str, object]


@dataclass(frozen=True)
class Way:
    """`asked` makes the task of the whole step into the rerun's; `save` stores its answer, with the usage of all the
    step's analyses, and tells what the step has become."""

    asked: Callable[[StepTask, StoredStep], StepTask]
    save: Callable[[Session, StoredStep, StepResult, datetime], StepFinding]


async def judge_again(rerun: Rerun, way: Way, *, database: Database, judge: Judge) -> Document:
    """The step's document then. A rerun that was carried out before asks the model nothing and changes nothing.

    ConflictError unless the audit is completed. PermanentError when the model cannot tell: the result stays as it was,
    only the tokens are counted. Reruns of one step wait for each other, so that each sees what the one before found.
    """
    rerun = replace(rerun, instructions=checked_instructions(rerun.instructions))
    name = f"rerun-{rerun.place.audit_id}-{rerun.place.position}"
    async with judge.claims.hold(name, judge.semaphore.owner, judge.knobs.lease_seconds):
        task = await asyncio.to_thread(_begin, rerun, way, database, judge)
        if task is not None:
            result = await analyse_step(task, judge=judge)
            await asyncio.to_thread(_end, rerun, way, result, database)
            if isinstance(result, UnjudgedStep):
                raise PermanentError(result.error)
    with database.reading() as session:
        return audit_step_document(session, rerun.place)


def _begin(rerun: Rerun, way: Way, database: Database, judge: Judge) -> StepTask | None:
    """None when there is nothing left to do."""
    place = rerun.place
    with database.transaction() as session:
        if has_rerun(session, rerun.rerun_id):
            return None
        found, stored = changeable_audit(session, place.audit_id), get_step(session, place)
        audit = found.standing
        heard = heard_of(session, audit.fiche_id)
        if not heard.timeline.recordings:
            coverage = heard.coverage
            raise PermanentError(nothing_to_judge(audit.fiche_id, coverage.recordings, len(coverage.heard)))
        enqueue(session, [rerun_started(audit, rerun, database_time(session))])
    step = next(step for step in found.config.steps if step.position == place.position)
    whole = StepTask(
        config=found.config,
        step=step,
        timeline=heard.timeline,
        instructions=rerun.instructions,
        product=heard.product,
    )
    task = way.asked(whole, stored)
    return replace(task, mode=mode_of(found.transcript_mode, [task], judge.knobs))


def _end(rerun: Rerun, way: Way, result: StepResult | UnjudgedStep, database: Database) -> None:
    place = rerun.place
    with database.transaction() as session:
        lock_audit(session, place.audit_id)
        audit, stored = get_audit(session, place.audit_id).standing, get_step(session, place)
        now = database_time(session)
        all_usage = stored.usage + result.usage
        if has_rerun(session, rerun.rerun_id):
            # Somebody was faster after our turn had ended: what this answer cost is all that is left of it.
            save_finding(session, place.audit_id, place.position, stored.finding, all_usage)
        elif isinstance(result, StepResult):
            after = way.save(session, stored, replace(result, usage=all_usage), now)
            _tell(session, audit, rerun, (stored.finding, after), result.usage.total_tokens)
        else:
            save_finding(session, place.audit_id, place.position, stored.finding, all_usage)
            enqueue(session, [rerun_failed(audit, rerun, result.error, now)])
            words = f"RERUN of {_named(rerun)} failed: {result.error}"
            write_notes(session, audit_note(audit, words, level="error"))
        write_summary(session, place.audit_id, now)


def _tell(
    session: Session, audit: Standing, rerun: Rerun, findings: tuple[StepFinding, StepFinding], tokens: int
) -> None:
    now, index = database_time(session), rerun.place.point
    before, after = (verdict_on(finding, index) for finding in findings)
    point = None if index is None else findings[0].points[index - 1].point
    add_rerun(session, rerun, (before, after), point, tokens, now)
    enqueue(session, [rerun_completed(audit, rerun, before, after, now)])
    words = " -> ".join(f"{finding.conforme}, {finding.score} points" for finding in findings)
    write_notes(session, audit_note(audit, f"RERUN of {_named(rerun)}: {words}", data={"tokens": tokens}))


def _named(rerun: Rerun) -> str:
    place = rerun.place
    step = f"step {place.position}"
    return step if place.point is None else f"control point {place.point} of {step}"
