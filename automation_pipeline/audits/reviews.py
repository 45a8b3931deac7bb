"""Changes of an audit: annotations, reviews by a person, and reruns by the model."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from automation_pipeline.audits.events import (
    audit_note,
    rerun_completed,
    rerun_failed,
    rerun_started,
)
from automation_pipeline.audits.judging import Judge, analyse_step
from automation_pipeline.audits.models.audits import (
    AuditSummary,
    Conforme,
    ControlPoint,
    Niveau,
    Rerun,
    Statut,
    StepFinding,
    StepLocation,
    StepResult,
    StoredStep,
    UnjudgedStep,
)
from automation_pipeline.audits.models.configs import AuditStep
from automation_pipeline.audits.models.requests import INVALID_CHANGE, AuditChange
from automation_pipeline.audits.queries.audits import (
    get_audit,
    get_changeable_audit,
    lock_audit,
    set_deleted,
    update_audit_row,
)
from automation_pipeline.audits.queries.documents import audit_document, audit_step_document
from automation_pipeline.audits.queries.steps import (
    add_rerun,
    add_review,
    get_step,
    has_rerun,
    save_finding,
    save_steps,
    write_summary,
)
from automation_pipeline.audits.queries.transcripts import get_transcript_snapshot
from automation_pipeline.audits.requests import check_automation_links, validate_instructions
from automation_pipeline.audits.rules.prompts import StepPrompt, choose_transcript_mode
from automation_pipeline.audits.rules.verdicts import (
    clamp_score,
    derive_verdict,
    minutages_of,
    nothing_to_judge,
)
from automation_pipeline.core.errors import InvalidInputError, NotFoundError, PermanentError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time

INVALID_REVIEW = "The review cannot be accepted"
Document = dict[str, object]


def _not_pending(niveau: Niveau | None) -> Niveau | None:
    if niveau is Niveau.PENDING:
        raise ValueError("cannot be PENDING after a review")
    return niveau


class _Review(JsonModel):
    reviewer: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    reason: Annotated[str | None, Field(min_length=1, max_length=5000)] = None


class StepReview(_Review):
    """Omitted fields stay unchanged."""

    conforme: Conforme
    traite: bool | None = None
    score: Annotated[int | None, Field(ge=0)] = None
    niveau_conformite: Annotated[Niveau | None, AfterValidator(_not_pending)] = None


class PointReview(_Review):
    """Omitted fields stay unchanged."""

    statut: Statut | None = None
    commentaire: Annotated[str | None, Field(max_length=20_000)] = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.statut is None and self.commentaire is None:
            raise ValueError("A review of a control point gives a statut or a commentaire.")
        return self


def apply_step_review(finding: StepFinding, weight: int, change: StepReview) -> StepFinding:
    """Raises InvalidInputError for a score above the step's weight."""
    if change.score is not None and change.score > weight:
        raise InvalidInputError(
            INVALID_REVIEW, (("score", f"must not be above the weight of the step, {weight}"),)
        )
    return replace(
        finding,
        conforme=change.conforme,
        traite=finding.traite if change.traite is None else change.traite,
        score=finding.score if change.score is None else change.score,
        niveau_conformite=change.niveau_conformite or finding.niveau_conformite,
    )


def apply_control_point_review(
    finding: StepFinding, weight: int, index: int, change: PointReview
) -> StepFinding:
    """Change the control point `index`, from 1, and keep its citations. A new statut scores the step again; a
    comment alone does not, so that a review of the whole step holds. Raises NotFoundError."""
    point = _point(finding, index)
    if change.commentaire is not None:
        point = replace(point, commentaire=change.commentaire)
    if change.statut is None:
        return replace(finding, points=_points_with(finding, index, point))
    return replace_control_point(finding, weight, index, replace(point, statut=change.statut))


def replace_control_point(
    finding: StepFinding, weight: int, index: int, point: ControlPoint
) -> StepFinding:
    """Replace the control point `index`, from 1, and score the step again from all its points. Raises
    NotFoundError."""
    _point(finding, index)
    points = _points_with(finding, index, point)
    verdict = derive_verdict(points, weight)
    return replace(
        finding,
        points=points,
        score=verdict.score,
        conforme=verdict.conforme,
        niveau_conformite=verdict.niveau,
        minutages=minutages_of(points),
    )


def _point(finding: StepFinding, index: int) -> ControlPoint:
    if not 1 <= index <= len(finding.points):
        raise NotFoundError(
            f"There is no control point {index}: the step has {len(finding.points)}."
        )
    return finding.points[index - 1]


def _points_with(finding: StepFinding, index: int, point: ControlPoint) -> tuple[ControlPoint, ...]:
    return (*finding.points[: index - 1], point, *finding.points[index:])


def single_point_step(step: AuditStep, finding: StepFinding, index: int) -> tuple[AuditStep, str]:
    """The step with the control point `index`, from 1, alone, and the previous verdict on it."""
    point = finding.points[index - 1]
    return replace(step, control_points=(point.point,)), f"{point.statut} : {point.commentaire}"


def verdict_summary(finding: StepFinding, index: int | None) -> Mapping[str, object]:
    """What the history keeps of the step, or of its control point `index`."""
    if index is None:
        return {
            "score": finding.score,
            "conforme": finding.conforme,
            "total_citations": finding.citations,
        }
    point = finding.points[index - 1]
    return {
        "statut": point.statut,
        "commentaire": point.commentaire,
        "citations": len(point.citations),
        "step_score": finding.score,
        "step_conforme": finding.conforme,
    }


def update_audit(audit_id: int, change: AuditChange, *, database: Database) -> Document:
    """Change the given fields and return the audit's document. Null clears a field."""
    values = change.model_dump(exclude_unset=True)
    with database.transaction() as session:
        found = get_audit(session, audit_id)
        links = {
            "automation_schedule_id": found.automation_schedule_id,
            "automation_run_id": found.automation_run_id,
        }
        changed = {name: values[name] for name in links if name in values}
        if changed:
            check_automation_links(session, links | changed, INVALID_CHANGE)
        # Deletion comes first, because every writer locks the fiche's row before the audit's.
        deleted = values.pop("deleted", found.is_deleted)
        if deleted != found.is_deleted:
            set_deleted(session, audit_id, database_time(session) if deleted else None)
        if values:
            update_audit_row(session, audit_id, values)
        if change.model_fields_set:
            write_notes(
                session,
                audit_note(found.summary, f"UPDATE: {', '.join(sorted(change.model_fields_set))}"),
            )
        return audit_document(session, audit_id)


def set_audit_deleted(audit_id: int, *, deleted: bool, database: Database) -> None:
    with database.transaction() as session:
        set_deleted(session, audit_id, database_time(session) if deleted else None)
        write_notes(
            session,
            audit_note(
                get_audit(session, audit_id).summary,
                "DELETE: the audit is deleted" if deleted else "RESTORE: the audit is not deleted",
            ),
        )


def record_review(
    location: StepLocation, given: Mapping[str, object], *, database: Database
) -> Document:
    """Apply a `StepReview` or, if the location names a control point, a `PointReview`, and return the step's
    document. Raises ConflictError unless the audit is completed."""
    audit_id, index = location.audit_id, location.point
    change = parse(StepReview if index is None else PointReview, given, INVALID_REVIEW)
    with database.transaction() as session:
        lock_audit(session, audit_id)
        found = get_changeable_audit(session, audit_id)
        stored, now = get_step(session, location), database_time(session)
        before, weight = stored.finding, stored.weight
        if isinstance(change, StepReview):
            after = apply_step_review(before, weight, change)
            verdict = f"{after.conforme},"
        else:
            assert index is not None  # noqa: S101  a review of a control point
            after = apply_control_point_review(before, weight, index, change)
            verdict = f"{after.points[index - 1].statut}, the step"
        save_finding(session, audit_id, stored, after, stored.usage)
        add_review(session, location, (before, after), change.reviewer, change.reason, now)
        compliance = write_summary(session, audit_id, now)
        reviewer = change.reviewer or "an unknown reviewer"
        message = (
            f"REVIEW: {_target_name(location)} by {reviewer}: {verdict} {after.score} points; "
            f"the audit is {compliance.niveau}, {compliance.score_percentage} %"
        )
        write_notes(session, audit_note(found.summary, message))
        return audit_step_document(session, location)


def _target_name(location: StepLocation) -> str:
    step = f"step {location.position}"
    return step if location.point is None else f"control point {location.point} of {step}"


async def run_rerun(rerun: Rerun, *, database: Database, judge: Judge) -> Document:
    """Judge a step or a control point again, and return the step's document. A rerun that has ended already
    changes nothing.

    Raises ConflictError unless the audit is completed, and PermanentError when the model gives no
    verdict: the finding stays, and the tokens are counted. Reruns of one step run one after the
    other, so that each sees the finding of the previous one.
    """
    rerun = replace(rerun, instructions=validate_instructions(rerun.instructions))
    async with judge.claims.hold(
        f"rerun-{rerun.location.audit_id}-{rerun.location.position}",
        judge.semaphore.owner,
        judge.options.lease_seconds,
    ):
        task = await asyncio.to_thread(_start_rerun, rerun, database, judge)
        if task is not None:
            result = await analyse_step(task, judge=judge)
            await asyncio.to_thread(_end_rerun, rerun, result, database)
            if isinstance(result, UnjudgedStep):
                raise PermanentError(result.error)
    with database.reading() as session:
        return audit_step_document(session, rerun.location)


def _start_rerun(rerun: Rerun, database: Database, judge: Judge) -> StepPrompt | None:
    """Return the prompt, or None when the rerun has ended already."""
    location = rerun.location
    with database.transaction() as session:
        if has_rerun(session, rerun.rerun_id):
            return None
        found = get_changeable_audit(session, location.audit_id)
        stored, audit = get_step(session, location), found.summary
        snapshot = get_transcript_snapshot(session, audit.fiche_id)
        if not snapshot.timeline.recordings:
            raise PermanentError(nothing_to_judge(audit.fiche_id, snapshot.coverage))
        enqueue(session, [rerun_started(audit, rerun, database_time(session))])
    step = next(step for step in found.config.steps if step.position == location.position)
    previous = None
    if location.point is not None:
        step, previous = single_point_step(step, stored.finding, location.point)
    task = StepPrompt(
        config=found.config,
        step=step,
        timeline=snapshot.timeline,
        instructions=rerun.instructions,
        previous=previous,
        product=snapshot.product,
    )
    return replace(task, mode=choose_transcript_mode(found.transcript_mode, [task], judge.options))


def _end_rerun(rerun: Rerun, result: StepResult | UnjudgedStep, database: Database) -> None:
    location = rerun.location
    with database.transaction() as session:
        lock_audit(session, location.audit_id)
        audit, stored = get_audit(session, location.audit_id).summary, get_step(session, location)
        now, usage = database_time(session), stored.usage + result.usage
        has_ended = has_rerun(session, rerun.rerun_id)  # by a worker that took over the claim
        if isinstance(result, StepResult) and not has_ended:
            _store_rerun(session, audit, rerun, stored, replace(result, usage=usage))
        else:
            save_finding(session, location.audit_id, stored, stored.finding, usage)
        if isinstance(result, UnjudgedStep) and not has_ended:
            enqueue(session, [rerun_failed(audit, rerun, result.error, now)])
            write_notes(
                session,
                audit_note(
                    audit,
                    f"RERUN of {_target_name(location)} failed: {result.error}",
                    level="error",
                ),
            )
        write_summary(session, location.audit_id, now)


def _store_rerun(
    session: Session, audit: AuditSummary, rerun: Rerun, stored: StoredStep, result: StepResult
) -> None:
    """Replace the step or its control point. The usage of the result adds up all analyses of the step."""
    index, now = rerun.location.point, database_time(session)
    before, point = stored.finding, None
    if index is None:
        after = replace(result.finding, score=clamp_score(result.finding.score, stored.weight))
        save_steps(session, [(audit.audit_id, replace(result, finding=after))], now)
    else:
        point, [found] = before.points[index - 1].point, result.finding.points
        after = replace_control_point(before, stored.weight, index, found)
        save_finding(
            session, audit.audit_id, stored, after, result.usage, stored.stats + result.stats
        )
    verdicts = (verdict_summary(before, index), verdict_summary(after, index))
    tokens = result.usage.total_tokens - stored.usage.total_tokens
    add_rerun(session, rerun, verdicts, point, tokens, now)
    enqueue(session, [rerun_completed(audit, rerun, *verdicts, now)])
    message = (
        f"RERUN of {_target_name(rerun.location)}: {before.conforme}, {before.score} points -> "
        f"{after.conforme}, {after.score} points"
    )
    write_notes(session, audit_note(audit, message, data={"tokens": tokens}))
