"""Queries of step results: verdicts, control points, citations, and the history of reviews and reruns."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Row, and_, delete, insert, select, tuple_, update
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import (
    Citation,
    Conforme,
    ControlPoint,
    GatingStats,
    MissingStep,
    Niveau,
    Rerun,
    Statut,
    StepFinding,
    StepLocation,
    StepResult,
    StoredStep,
    UnjudgedStep,
)
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.queries.audits import get_audit, update_audit_row
from automation_pipeline.audits.rules.verdicts import (
    Compliance,
    score_audit,
    summary_columns,
    usage_document,
    verdict_columns,
)
from automation_pipeline.audits.tables import (
    CitationRow,
    ControlPointRow,
    HumanReviewRow,
    RerunEventRow,
    StepResultRow,
)
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.statements import among, insert_rows

Document = Mapping[str, object]

_CITATION_COLUMNS = tuple(field.name for field in fields(Citation))


def save_steps(
    session: Session,
    results: Sequence[tuple[int, StepResult | UnjudgedStep]],
    now: datetime,
) -> None:
    """Store results by audit; each replaces an earlier result of its step. The number of statements is
    constant."""
    keys = [(audit_id, result.step.position) for audit_id, result in results]
    session.connection().execute(
        delete(StepResultRow).where(
            StepResultRow.audit_id.in_(sorted({audit_id for audit_id, _ in keys})),
            tuple_(StepResultRow.audit_id, StepResultRow.step_position).in_(keys),
        )
    )
    insert_rows(
        session, StepResultRow, [_step_row(audit_id, result, now) for audit_id, result in results]
    )
    _add_points(
        session,
        {
            (audit_id, result.step.position): result.finding.points
            for audit_id, result in results
            if isinstance(result, StepResult)
        },
    )


def _step_row(audit_id: int, result: StepResult | UnjudgedStep, now: datetime) -> Document:
    step = result.step
    is_judged = isinstance(result, StepResult)
    analysis: dict[str, object] = {
        "step_metadata": {
            "position": step.position,
            "name": step.name,
            "severity": step.severity_level,
            "is_critical": step.is_critical,
            "weight": step.weight,
        },
        "usage": usage_document(result.usage),
    }
    if is_judged:
        analysis |= {
            "gating": asdict(result.stats),
            "transcript_mode": result.mode,
            "control_points_missing": result.missing,
            "control_points_unknown": result.unknown,
        }
    return {
        "audit_id": audit_id,
        "step_position": step.position,
        "step_name": step.name,
        "severity_level": step.severity_level,
        "is_critical": step.is_critical,
        "weight": step.weight,
        **verdict_columns(result.finding if is_judged else None),
        "total_citations": result.finding.citations if is_judged else 0,
        "total_tokens": result.usage.total_tokens,
        "error": None if is_judged else result.error,
        "raw_result": analysis,
        "analysed_at": now,
    }


def _add_points(session: Session, points: Mapping[tuple[int, int], Sequence[ControlPoint]]) -> None:
    """Store the control points by audit and position of their step."""
    numbered = [
        ({"audit_id": audit_id, "step_position": position, "control_point_index": index}, point)
        for (audit_id, position), of_step in points.items()
        for index, point in enumerate(of_step, start=1)
    ]
    rows = [
        {
            **key,
            "point": point.point,
            "statut": point.statut.value,
            "commentaire": point.commentaire,
            "minutages": list(point.minutages),
            "erreur_transcription_notee": point.erreur_transcription_notee,
            "variation_phonetique_utilisee": point.variation_phonetique_utilisee,
        }
        for key, point in numbered
    ]
    cited = [
        {**key, "citation_index": number, **vars(citation)}
        for key, point in numbered
        for number, citation in enumerate(point.citations, start=1)
    ]
    insert_rows(session, ControlPointRow, rows)
    insert_rows(session, CitationRow, cited)


def save_finding(
    session: Session,
    audit_id: int,
    step: StoredStep,
    finding: StepFinding,
    usage: Usage,
    stats: GatingStats | None = None,
) -> None:
    """Store a step that a review or a rerun of a control point changed. The record of the step's
    analysis stays, except for the usage and, if given, the `stats`."""
    is_it = and_(StepResultRow.audit_id == audit_id, StepResultRow.step_position == step.position)
    analysis = session.scalars(select(StepResultRow.raw_result).where(is_it)).one()
    session.execute(
        update(StepResultRow)
        .where(is_it)
        .values(
            **verdict_columns(finding),
            total_citations=finding.citations,
            total_tokens=usage.total_tokens,
            raw_result={
                **analysis,
                "usage": usage_document(usage),
                **({} if stats is None else {"gating": asdict(stats)}),
            },
        )
        .execution_options(synchronize_session=False)
    )
    session.execute(
        delete(ControlPointRow).where(
            ControlPointRow.audit_id == audit_id, ControlPointRow.step_position == step.position
        )
    )
    _add_points(session, {(audit_id, step.position): finding.points})


def delete_steps(session: Session, audit_id: int) -> None:
    session.execute(delete(StepResultRow).where(StepResultRow.audit_id == audit_id))


def copy_judged_steps(session: Session, audit_id: int, from_audit_id: int) -> int:
    """Copy the judged steps of another audit, so that the model need not judge them again, and
    return their number."""
    judged, _ = attempted_steps(session, from_audit_id)
    of_copy = {"usage": usage_document(Usage()), "judged_in_audit": str(from_audit_id)}
    for table in (StepResultRow, ControlPointRow, CitationRow):
        copies = [
            {**row, "audit_id": audit_id}
            for row in session.execute(
                select(table.__table__).where(
                    table.audit_id == from_audit_id, among(session, table.step_position, judged)
                )
            ).mappings()
        ]
        for copy in copies:
            del copy["id"]
            if table is StepResultRow:
                copy |= {
                    "total_tokens": 0,
                    "raw_result": {**cast("Document", copy["raw_result"]), **of_copy},
                }
        if copies:
            session.execute(insert(table), copies)
    return len(judged)


def attempted_steps(session: Session, audit_id: int) -> tuple[set[int], dict[int, Usage]]:
    """The positions of the judged steps, and the usage of the steps that could not be judged."""
    judged, spent = set[int](), dict[int, Usage]()
    for row in session.execute(
        select(StepResultRow.step_position, StepResultRow.error, StepResultRow.raw_result).where(
            StepResultRow.audit_id == audit_id
        )
    ):
        if row.error is None:
            judged.add(row.step_position)
        else:
            spent[row.step_position] = _usage_of(row.raw_result)
    return judged, spent


def _usage_of(analysis: Document) -> Usage:
    usage = cast("Mapping[str, int]", analysis["usage"])
    return Usage(usage["prompt_tokens"], usage["completion_tokens"])


def _in_order(
    session: Session,
    table: type[StepResultRow | ControlPointRow | CitationRow],
    audit_ids: Sequence[int],
    order: str,
) -> Sequence[Row[Any]]:  # the columns of the table
    return session.execute(
        select(table.__table__)
        .where(among(session, table.audit_id, audit_ids))
        .order_by(getattr(table, order))
    ).all()


def all_steps(
    session: Session, audit_ids: Sequence[int]
) -> Mapping[int, list[StoredStep | MissingStep]]:
    """The steps of each audit by position, judged or not. The number of queries is constant."""
    citations: dict[tuple[int, int, int], list[Citation]] = defaultdict(list)
    for row in _in_order(session, CitationRow, audit_ids, "citation_index"):
        citations[row.audit_id, row.step_position, row.control_point_index].append(
            Citation(**{name: getattr(row, name) for name in _CITATION_COLUMNS})
        )
    points: dict[tuple[int, int], list[ControlPoint]] = defaultdict(list)
    for row in _in_order(session, ControlPointRow, audit_ids, "control_point_index"):
        points[row.audit_id, row.step_position].append(
            ControlPoint(
                point=row.point,
                statut=Statut(row.statut),
                commentaire=row.commentaire,
                citations=tuple(
                    citations[row.audit_id, row.step_position, row.control_point_index]
                ),
                minutages=tuple(row.minutages),
                erreur_transcription_notee=row.erreur_transcription_notee,
                variation_phonetique_utilisee=row.variation_phonetique_utilisee,
            )
        )
    steps: dict[int, list[StoredStep | MissingStep]] = defaultdict(list)
    for row in _in_order(session, StepResultRow, audit_ids, "step_position"):
        steps[row.audit_id].append(_step(row, tuple(points[row.audit_id, row.step_position])))
    return steps


def _step(row: Row[Any], points: tuple[ControlPoint, ...]) -> StoredStep | MissingStep:
    facts: dict[str, Any] = {
        "position": row.step_position,
        "name": row.step_name,
        "severity": row.severity_level,
        "is_critical": row.is_critical,
        "weight": row.weight,
        "usage": _usage_of(row.raw_result),
    }
    if row.error is not None:
        return MissingStep(**facts, error=row.error)
    finding = StepFinding(
        traite=row.traite,
        conforme=Conforme(row.conforme),
        score=cast("int", row.score),
        niveau_conformite=Niveau(row.niveau_conformite),
        points=points,
        commentaire_global=row.commentaire_global,
        minutages=tuple(row.minutages),
        mots_cles_trouves=tuple(row.mots_cles_trouves),
        erreurs_transcription_tolerees=row.erreurs_transcription_tolerees,
    )
    return StoredStep(
        **facts,
        finding=finding,
        stats=GatingStats(**cast("dict[str, Any]", row.raw_result["gating"])),
    )


def stored_steps(session: Session, audit_id: int) -> list[StoredStep]:
    return [s for s in all_steps(session, [audit_id])[audit_id] if isinstance(s, StoredStep)]


def get_step(session: Session, location: StepLocation) -> StoredStep:
    """Raises NotFoundError for an unknown or unjudged step, and for an unknown control point."""
    name = f"{location.audit_id}:{location.position}"
    for step in stored_steps(session, location.audit_id):
        if step.position == location.position:
            if location.point is not None and not 1 <= location.point <= len(step.finding.points):
                raise NotFoundError(
                    f"Audit control point with ID '{name}:{location.point}' not found"
                )
            return step
    raise NotFoundError(f"Audit step with ID '{name}' not found")


def write_summary(session: Session, audit_id: int, now: datetime) -> Compliance:
    """Compute the audit's result from its steps. `now` is its end unless it has one."""
    found, steps = get_audit(session, audit_id), stored_steps(session, audit_id)
    compliance = score_audit(steps)
    update_audit_row(session, audit_id, summary_columns(found, steps, compliance, now))
    return compliance


_STEP_FIELDS = ("traite", "conforme", "score", "niveau_conformite")
_POINT_FIELDS = ("statut", "commentaire")


def add_review(
    session: Session,
    location: StepLocation,
    findings: tuple[StepFinding, StepFinding],
    reviewer: str | None,
    reason: str | None,
    now: datetime,
) -> None:
    (before, after), index = findings, location.point
    names, changed, point = _STEP_FIELDS, (before, after), None
    if index is not None:
        point = before.points[index - 1].point
        names, changed = _POINT_FIELDS, (before.points[index - 1], after.points[index - 1])
    previous = {f"previous_{name}": getattr(changed[0], name) for name in names}
    override = {f"override_{name}": getattr(changed[1], name) for name in names}
    session.add(
        HumanReviewRow(
            audit_id=location.audit_id,
            step_position=location.position,
            reviewed_at=now,
            reviewer=reviewer,
            reason=reason,
            kind="step" if index is None else "control_point",
            control_point_index=index,
            point=point,
            **previous,
            **override,
        )
    )
    session.flush()


def add_rerun(
    session: Session,
    rerun: Rerun,
    verdicts: tuple[Document, Document],
    point: str | None,
    tokens: int,
    now: datetime,
) -> None:
    """Record a rerun with the verdicts before and after it. `point` is the text of the control point, if it
    was of one."""
    location = rerun.location
    session.add(
        RerunEventRow(
            audit_id=location.audit_id,
            step_position=location.position,
            occurred_at=now,
            kind="step_rerun" if location.point is None else "control_point_rerun",
            rerun_id=rerun.rerun_id,
            event_id=rerun.event_id,
            custom_prompt=rerun.instructions,
            control_point_index=location.point,
            point=point,
            tokens=tokens,
            previous=dict(verdicts[0]),
            next=dict(verdicts[1]),
        )
    )
    session.flush()


def has_rerun(session: Session, rerun_id: str) -> bool:
    return (
        session.scalar(select(RerunEventRow.id).where(RerunEventRow.rerun_id == rerun_id))
        is not None
    )


def step_histories(
    session: Session, audit_ids: Sequence[int]
) -> Mapping[tuple[int, int], Mapping[str, list[Document]]]:
    """The reviews and reruns by audit and position. The history of any other step is empty."""
    histories: dict[tuple[int, int], dict[str, list[Document]]] = defaultdict(
        lambda: {"human_review": [], "rerun_history": []}
    )
    reviews = select(HumanReviewRow).where(among(session, HumanReviewRow.audit_id, audit_ids))
    for row in session.scalars(reviews.order_by(HumanReviewRow.id)):
        names = _STEP_FIELDS if row.control_point_index is None else _POINT_FIELDS
        histories[row.audit_id, row.step_position]["human_review"].append(
            {
                "at": iso(row.reviewed_at),
                "by": row.reviewer,
                "reason": row.reason,
                "kind": row.kind,
                **_point_of(row),
                "previous": {name: getattr(row, f"previous_{name}") for name in names},
                "override": {name: getattr(row, f"override_{name}") for name in names},
            }
        )
    reruns = select(RerunEventRow).where(among(session, RerunEventRow.audit_id, audit_ids))
    for row in session.scalars(reruns.order_by(RerunEventRow.id)):
        histories[row.audit_id, row.step_position]["rerun_history"].append(
            {
                "at": iso(row.occurred_at),
                "kind": row.kind,
                "rerun_id": row.rerun_id,
                "event_id": row.event_id,
                "step_position": row.step_position,
                **_point_of(row),
                "custom_prompt": row.custom_prompt,
                "previous": dict(row.previous),
                "next": dict(row.next),
            }
        )
    return histories


def _point_of(row: HumanReviewRow | RerunEventRow) -> Document:
    index = row.control_point_index
    return {} if index is None else {"control_point_index": index, "point": row.point}
