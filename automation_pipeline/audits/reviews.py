"""Changes of an audit: annotations, reviews by a person, and reruns by the model."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from automation_pipeline.audits.events import (
    audit_note,
    rerun_completed,
    rerun_failed,
    rerun_started,
)
from automation_pipeline.audits.judging import analyse_step
from automation_pipeline.audits.models.audits import AuditSummary, StepLocation
from automation_pipeline.audits.models.findings import (
    StepFinding,
    StepResult,
    StoredStep,
    UnjudgedStep,
)
from automation_pipeline.audits.models.requests import INVALID_CHANGE, AuditChange
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.queries.audits import (
    get_audit,
    get_changeable_audit,
    is_deleted,
    lock_audit,
    set_deleted,
    triggered_by,
    update_audit_row,
)
from automation_pipeline.audits.queries.documents import audit_document, audit_step_document
from automation_pipeline.audits.queries.requests import check_automation_links
from automation_pipeline.audits.queries.steps import (
    add_rerun,
    add_review,
    get_step,
    has_rerun,
    save_finding,
    save_step,
    write_summary,
)
from automation_pipeline.audits.queries.transcripts import get_transcript_snapshot
from automation_pipeline.audits.rules import reviews as review
from automation_pipeline.audits.rules.prompts import StepPrompt, choose_transcript_mode
from automation_pipeline.audits.rules.results import nothing_to_judge
from automation_pipeline.audits.rules.reviews import (
    PointReview,
    Rerun,
    StepReview,
    replace_control_point,
    review_entry,
    single_point_step,
    validate_instructions,
    verdict_summary,
)
from automation_pipeline.audits.rules.verdicts import clamp_score
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.json_model import parse
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes

LINKS = ("automation_schedule_id", "automation_run_id")


def update_audit(
    audit_id: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """Apply an `AuditChange` and return the audit's document. Null clears a field, others stay."""
    values = parse(AuditChange, given, INVALID_CHANGE).model_dump(exclude_unset=True)
    with database.transaction() as session:
        audit = get_audit(session, audit_id).summary
        changed_links = {name: values[name] for name in LINKS if name in values}
        if changed_links:
            check_automation_links(
                session, {**_stored_links(session, audit_id), **changed_links}, INVALID_CHANGE
            )
        if "deleted" in values:
            _set_deleted(session, audit_id, deleted=values.pop("deleted"))
        if values:
            update_audit_row(session, audit_id, values)
        if given:
            write_notes(session, audit_note(audit, f"UPDATE: {', '.join(sorted(given))}"))
        return audit_document(session, audit_id)


def _stored_links(session: Session, audit_id: int) -> dict[str, int | None]:
    stored = triggered_by(session, audit_id)
    return {name: None if stored[name] is None else int(str(stored[name])) for name in LINKS}


def _set_deleted(session: Session, audit_id: int, *, deleted: bool) -> None:
    """Set the mark first, because every writer locks the fiche's row before the audit's. Deleting again
    keeps the first time."""
    if deleted != is_deleted(session, audit_id):
        set_deleted(session, audit_id, database_time(session) if deleted else None)


def delete_audit(audit_id: int, *, database: Database) -> None:
    """Mark the audit as deleted. `restore_audit` reverts this."""
    with database.transaction() as session:
        set_deleted(session, audit_id, database_time(session))
        write_notes(
            session,
            audit_note(get_audit(session, audit_id).summary, "DELETE: the audit is deleted"),
        )


def restore_audit(audit_id: int, *, database: Database) -> None:
    """Remove the mark of a deleted audit."""
    with database.transaction() as session:
        set_deleted(session, audit_id, None)
        write_notes(
            session,
            audit_note(get_audit(session, audit_id).summary, "RESTORE: the audit is not deleted"),
        )


def review_step(
    audit_id: int, position: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """Apply a `StepReview` and return the step's document. Raises ConflictError unless the audit is
    completed."""
    change = parse(StepReview, given, review.INVALID_REVIEW)
    location = StepLocation(audit_id, position)
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found = get_changeable_audit(session, audit_id)
        stored, now = get_step(session, location), database_time(session)
        after = review.apply_step_review(stored.finding, stored.weight, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, location, review_entry(stored.finding, after, change), now)
        compliance = write_summary(session, audit_id, now)
        message = (
            f"REVIEW: step {position} by {change.reviewer or 'somebody'}: {after.conforme}, {after.score} points; the "
            f"audit is {compliance.niveau}, {compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, location)


def review_control_point(
    audit_id: int, position: int, index: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """Apply a `PointReview` and return the step's document. Raises ConflictError unless the audit is
    completed."""
    change = parse(PointReview, given, review.INVALID_REVIEW)
    location = StepLocation(audit_id, position, index)
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found = get_changeable_audit(session, audit_id)
        stored, now = get_step(session, location), database_time(session)
        after = review.apply_control_point_review(stored.finding, stored.weight, index, change)
        save_finding(session, audit_id, position, after, stored.usage)
        add_review(session, location, review_entry(stored.finding, after, change, index), now)
        compliance = write_summary(session, audit_id, now)
        message = (
            f"REVIEW: control point {index} of step {position} by {change.reviewer or 'somebody'}: "
            f"{after.points[index - 1].statut}, the step {after.score} points; the audit is {compliance.niveau}, "
            f"{compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, location)


Document = dict[str, object]


@dataclass(frozen=True)
class RerunStrategy:
    """`prepare` turns the prompt of the step into that of the rerun. `save` stores the result, with the
    usage of all analyses of the step, and returns the new finding."""

    prepare: Callable[[StepPrompt, StoredStep], StepPrompt]
    save: Callable[[Session, StoredStep, StepResult, datetime], StepFinding]


async def run_rerun(
    rerun: Rerun, strategy: RerunStrategy, *, database: Database, judge: Judge
) -> Document:
    """Run the rerun and return the step's document. A rerun that has ended already changes nothing.

    Raises ConflictError unless the audit is completed, and PermanentError when the model gives no
    verdict: the finding stays, and the tokens are counted. Reruns of one step run one after the
    other, so that each sees the finding of the previous one.
    """
    rerun = replace(rerun, instructions=validate_instructions(rerun.instructions))
    name = f"rerun-{rerun.place.audit_id}-{rerun.place.position}"
    async with judge.claims.hold(name, judge.semaphore.owner, judge.options.lease_seconds):
        task = await asyncio.to_thread(_begin, rerun, strategy, database, judge)
        if task is not None:
            result = await analyse_step(task, judge=judge)
            await asyncio.to_thread(_end, rerun, strategy, result, database)
            if isinstance(result, UnjudgedStep):
                raise PermanentError(result.error)
    with database.reading() as session:
        return audit_step_document(session, rerun.place)


def _begin(
    rerun: Rerun, strategy: RerunStrategy, database: Database, judge: Judge
) -> StepPrompt | None:
    """Return the prompt, or None when the rerun has ended already."""
    location = rerun.place
    with database.transaction() as session:
        if has_rerun(session, rerun.rerun_id):
            return None
        found, stored = (
            get_changeable_audit(session, location.audit_id),
            get_step(session, location),
        )
        audit = found.summary
        snapshot = get_transcript_snapshot(session, audit.fiche_id)
        if not snapshot.timeline.recordings:
            coverage = snapshot.coverage
            raise PermanentError(
                nothing_to_judge(audit.fiche_id, coverage.recordings, len(coverage.transcribed))
            )
        enqueue(session, [rerun_started(audit, rerun, database_time(session))])
    step = next(step for step in found.config.steps if step.position == location.position)
    whole = StepPrompt(
        config=found.config,
        step=step,
        timeline=snapshot.timeline,
        instructions=rerun.instructions,
        product=snapshot.product,
    )
    task = strategy.prepare(whole, stored)
    return replace(task, mode=choose_transcript_mode(found.transcript_mode, [task], judge.options))


def _end(
    rerun: Rerun, strategy: RerunStrategy, result: StepResult | UnjudgedStep, database: Database
) -> None:
    location = rerun.place
    with database.transaction() as session:
        lock_audit(session, location.audit_id)
        audit, stored = get_audit(session, location.audit_id).summary, get_step(session, location)
        now = database_time(session)
        all_usage = stored.usage + result.usage
        if has_rerun(session, rerun.rerun_id):
            # Another worker finished the rerun after this one lost its claim: only count the tokens.
            save_finding(session, location.audit_id, location.position, stored.finding, all_usage)
        elif isinstance(result, StepResult):
            after = strategy.save(session, stored, replace(result, usage=all_usage), now)
            _record_rerun(session, audit, rerun, (stored.finding, after), result.usage.total_tokens)
        else:
            save_finding(session, location.audit_id, location.position, stored.finding, all_usage)
            enqueue(session, [rerun_failed(audit, rerun, result.error, now)])
            message = f"RERUN of {_target_name(rerun)} failed: {result.error}"
            write_notes(session, audit_note(audit, message, level="error"))
        write_summary(session, location.audit_id, now)


def _record_rerun(
    session: Session,
    audit: AuditSummary,
    rerun: Rerun,
    findings: tuple[StepFinding, StepFinding],
    tokens: int,
) -> None:
    now, index = database_time(session), rerun.place.point
    before, after = (verdict_summary(finding, index) for finding in findings)
    point = None if index is None else findings[0].points[index - 1].point
    add_rerun(session, rerun, (before, after), point, tokens, now)
    enqueue(session, [rerun_completed(audit, rerun, before, after, now)])
    message = " -> ".join(f"{finding.conforme}, {finding.score} points" for finding in findings)
    write_notes(
        session,
        audit_note(audit, f"RERUN of {_target_name(rerun)}: {message}", data={"tokens": tokens}),
    )


def _target_name(rerun: Rerun) -> str:
    location = rerun.place
    step = f"step {location.position}"
    return step if location.point is None else f"control point {location.point} of {step}"


async def rerun_step(rerun: Rerun, *, database: Database, judge: Judge) -> dict[str, object]:
    """Judge a whole step again; see `run_rerun`."""

    def save(
        session: Session, stored: StoredStep, result: StepResult, now: datetime
    ) -> StepFinding:
        after = replace(result.finding, score=clamp_score(result.finding.score, stored.weight))
        kept = replace(result, gated=replace(result.gated, finding=after))
        save_step(session, rerun.place.audit_id, kept, now)
        return after

    return await run_rerun(
        rerun, RerunStrategy(lambda task, _stored: task, save), database=database, judge=judge
    )


async def rerun_control_point(
    rerun: Rerun, *, database: Database, judge: Judge
) -> dict[str, object]:
    """Judge one control point again; see `run_rerun`. The rerun's location names the point."""
    location = rerun.place
    index = location.point
    assert index is not None  # noqa: S101  a rerun without one is `rerun_step`

    def prepare(task: StepPrompt, stored: StoredStep) -> StepPrompt:
        step, previous = single_point_step(task.step, stored.finding, index)
        return replace(task, step=step, previous=previous)

    def save(
        session: Session, stored: StoredStep, result: StepResult, _now: datetime
    ) -> StepFinding:
        [point] = result.finding.points
        after = replace_control_point(stored.finding, stored.weight, index, point)
        stats = stored.stats + result.gated.stats
        save_finding(session, location.audit_id, location.position, after, result.usage, stats)
        return after

    return await run_rerun(rerun, RerunStrategy(prepare, save), database=database, judge=judge)
