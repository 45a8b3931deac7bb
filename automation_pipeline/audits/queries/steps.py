"""Queries of step results: verdicts, control points, citations, and the history of reviews and reruns."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import TypeVar, cast

from sqlalchemy import Select, bindparam, delete, insert, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.models.configs import AuditStep
from automation_pipeline.audits.models.findings import (
    Citation,
    Conforme,
    ControlPoint,
    GatingStats,
    MissingStep,
    Niveau,
    Statut,
    StepFinding,
    StepResult,
    StoredStep,
    UnjudgedStep,
)
from automation_pipeline.audits.queries.audits import AuditRecord, get_audit, update_audit_row
from automation_pipeline.audits.rules.results import ResultContext, compliance_of, summary_columns
from automation_pipeline.audits.rules.reviews import (
    POINT_FIELDS,
    STEP_FIELDS,
    Rerun,
    ReviewEntry,
    StepHistory,
)
from automation_pipeline.audits.rules.verdicts import Compliance
from automation_pipeline.audits.tables import (
    AuditRow,
    CitationRow,
    ControlPointRow,
    HumanReviewRow,
    RerunEventRow,
    StepResultRow,
)
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.prepared import execute, execute_each
from automation_pipeline.storage.statements import among, among_given

Document = Mapping[str, object]
StepTable = TypeVar("StepTable", StepResultRow, ControlPointRow, CitationRow)

_CITATION_COLUMNS = (
    "texte",
    "minutage",
    "minutage_secondes",
    "speaker",
    "recording_index",
    "chunk_index",
    "recording_date",
    "recording_time",
    "recording_url",
    "call_id",
)


_DELETE_STEP = delete(StepResultRow).where(
    StepResultRow.audit_id == bindparam("of_audit"),
    StepResultRow.step_position == bindparam("at_position"),
)
_JUDGED = select(StepResultRow.step_position).where(
    StepResultRow.audit_id == bindparam("of_audit"), StepResultRow.error.is_(None)
)
_ADD_STEPS, _ADD_POINTS, _ADD_CITATIONS = (
    insert(StepResultRow),
    insert(ControlPointRow),
    insert(CitationRow),
)


def judged_positions(session: Session, audit_id: int) -> set[int]:
    return {position for (position,) in execute(session, _JUDGED, {"of_audit": audit_id})}


def delete_steps(session: Session, audit_id: int) -> None:
    session.execute(delete(StepResultRow).where(StepResultRow.audit_id == audit_id))


def copy_judged_steps(session: Session, audit_id: int, from_audit_id: int) -> int:
    """Copy the judged steps of another audit, which were paid for there; how many they are."""
    judged = judged_positions(session, from_audit_id)
    free = {"usage": _usage(Usage()), "judged_in_audit": str(from_audit_id)}
    for table in (StepResultRow, ControlPointRow, CitationRow):
        rows = session.execute(
            select(table.__table__).where(table.audit_id == from_audit_id)
        ).mappings()
        copies = [{**row, "audit_id": audit_id} for row in rows if row["step_position"] in judged]
        for copy in copies:
            copy.pop("id")
            if table is StepResultRow:
                copy.update(
                    total_tokens=0, raw_result={**cast("Document", copy["raw_result"]), **free}
                )
        if copies:
            session.execute(insert(table), copies)
    return len(judged)


def save_step(
    session: Session, audit_id: int, result: StepResult | UnjudgedStep, now: datetime
) -> None:
    """Replaces an earlier result of the step."""
    step = {
        "step_position": result.step.position,
        "step_name": result.step.name,
        "severity_level": result.step.severity,
        "is_critical": result.step.is_critical,
        "weight": result.step.weight,
        "total_tokens": result.usage.total_tokens,
        "raw_result": _raw_result(result),
        "analysed_at": now,
    }
    execute(session, _DELETE_STEP, {"of_audit": audit_id, "at_position": result.step.position})
    is_judged = isinstance(result, StepResult)
    verdict = _verdict(result.finding) if is_judged else {**_NO_VERDICT, "error": result.error}
    execute_each(session, _ADD_STEPS, [{"audit_id": audit_id, **step, **verdict}])
    if is_judged:
        _add_points(session, audit_id, result.step.position, result.finding.points)


def _raw_result(result: StepResult | UnjudgedStep) -> Document:
    attempt: Document = {"step_metadata": _metadata(result.step), "usage": _usage(result.usage)}
    if isinstance(result, UnjudgedStep):
        return attempt
    return {
        **attempt,
        "gating": asdict(result.gated.stats),
        "transcript_mode": result.mode,
        "control_points_missing": result.missing,
        "control_points_unknown": result.unknown,
    }


def save_finding(
    session: Session,
    audit_id: int,
    position: int,
    finding: StepFinding,
    usage: Usage,
    stats: GatingStats | None = None,
) -> None:
    """What a person or a control-point rerun made of a stored step; how it was analysed stays on
    record, but for the `stats` of gating where they are given."""
    place = (StepResultRow.audit_id == audit_id, StepResultRow.step_position == position)
    row = session.scalars(select(StepResultRow).where(*place)).one()
    gating = {} if stats is None else {"gating": asdict(stats)}
    row.total_tokens, row.raw_result = (
        usage.total_tokens,
        {**row.raw_result, "usage": _usage(usage), **gating},
    )
    for name, value in _verdict(finding).items():
        setattr(row, name, value)
    of_step = (ControlPointRow.audit_id == audit_id, ControlPointRow.step_position == position)
    session.execute(delete(ControlPointRow).where(*of_step))
    session.flush()
    _add_points(session, audit_id, position, finding.points)


def stored_steps(session: Session, audit_id: int) -> list[StoredStep]:
    """Every judged step, by position."""
    return judged_steps(session, [audit_id])[audit_id]


def judged_steps(session: Session, audit_ids: Sequence[int]) -> Mapping[int, list[StoredStep]]:
    """The same of many audits, by as many queries. None of an audit that is unknown."""
    found = all_steps(session, audit_ids)
    judged = {
        audit_id: [step for step in steps if isinstance(step, StoredStep)]
        for audit_id, steps in found.items()
    }
    return defaultdict(list, judged)


def missing_steps(session: Session, audit_id: int) -> list[MissingStep]:
    """The steps that could not be judged so far."""
    return [
        step for step in all_steps(session, [audit_id])[audit_id] if isinstance(step, MissingStep)
    ]


def all_steps(
    session: Session, audit_ids: Sequence[int]
) -> Mapping[int, list[StoredStep | MissingStep]]:
    """Judged or not, by position, of many audits."""
    citations: dict[tuple[int, int, int], list[Citation]] = defaultdict(list)
    for row in _rows(session, CitationRow, audit_ids, CitationRow.citation_index):
        citations[row.audit_id, row.step_position, row.control_point_index].append(_citation(row))
    points: dict[tuple[int, int], list[ControlPoint]] = defaultdict(list)
    for row in _rows(session, ControlPointRow, audit_ids, ControlPointRow.control_point_index):
        cited = tuple(citations[row.audit_id, row.step_position, row.control_point_index])
        points[row.audit_id, row.step_position].append(_point(row, cited))
    steps: dict[int, list[StoredStep | MissingStep]] = defaultdict(list)
    for row in _rows(session, StepResultRow, audit_ids, StepResultRow.step_position):
        of_step = tuple(points[row.audit_id, row.step_position])
        steps[row.audit_id].append(
            _judged_step(row, of_step) if row.error is None else _missing_step(row, row.error)
        )
    return steps


def _rows(
    session: Session,
    table: type[StepTable],
    audit_ids: Sequence[int],
    order: InstrumentedAttribute[int],
) -> Iterable[StepTable]:
    """As plain rows, which have the columns' names: many are read, and none is changed."""
    return cast(
        "Iterable[StepTable]", execute(session, _rows_in_order(table, order), {"audits": audit_ids})
    )


@cache
def _rows_in_order(
    table: type[StepTable], order: InstrumentedAttribute[int]
) -> Callable[[bool], Select[tuple[object, ...]]]:
    def made(postgres: bool) -> Select[tuple[object, ...]]:
        wanted = among_given(table.audit_id, "audits", postgres=postgres)
        return select(table.__table__).where(wanted).order_by(order)

    return made


def get_step(session: Session, place: StepLocation) -> StoredStep:
    """The step at the place; NotFoundError when there is no such step or control point."""
    step = next(
        (step for step in stored_steps(session, place.audit_id) if step.position == place.position),
        None,
    )
    if step is None:
        raise NotFoundError(f"Audit step with ID '{place.audit_id}:{place.position}' not found")
    if place.point is not None and not 1 <= place.point <= len(step.finding.points):
        where = f"{place.audit_id}:{place.position}:{place.point}"
        raise NotFoundError(f"Audit control point with ID '{where}' not found")
    return step


def _verdict(finding: StepFinding) -> dict[str, object]:
    return {
        "traite": finding.traite,
        "conforme": finding.conforme,
        "score": finding.score,
        "niveau_conformite": finding.niveau_conformite,
        "commentaire_global": finding.commentaire_global,
        "mots_cles_trouves": list(finding.mots_cles_trouves),
        "minutages": list(finding.minutages),
        "erreurs_transcription_tolerees": finding.erreurs_transcription_tolerees,
        "total_citations": finding.citations,
        "error": None,
    }


_NO_VERDICT: Document = {
    "traite": False,
    "conforme": None,
    "score": None,
    "niveau_conformite": None,
    "commentaire_global": "",
    "mots_cles_trouves": [],
    "minutages": [],
    "erreurs_transcription_tolerees": 0,
    "total_citations": 0,
}


def _add_points(
    session: Session, audit_id: int, position: int, points: Sequence[ControlPoint]
) -> None:
    place = {"audit_id": audit_id, "step_position": position}
    rows = [
        {
            **place,
            "control_point_index": index,
            "point": point.point,
            "statut": point.statut,
            "commentaire": point.commentaire,
            "minutages": list(point.minutages),
            "erreur_transcription_notee": point.erreur_transcription_notee,
            "variation_phonetique_utilisee": point.variation_phonetique_utilisee,
        }
        for index, point in enumerate(points, start=1)
    ]
    cited = [
        {
            **place,
            "control_point_index": index,
            "citation_index": number,
            **{name: getattr(citation, name) for name in _CITATION_COLUMNS},
        }
        for index, point in enumerate(points, start=1)
        for number, citation in enumerate(point.citations, start=1)
    ]
    execute_each(session, _ADD_POINTS, rows)
    execute_each(session, _ADD_CITATIONS, cited)


def _metadata(step: AuditStep) -> Document:
    return {
        "position": step.position,
        "name": step.name,
        "severity": step.severity,
        "is_critical": step.is_critical,
        "weight": step.weight,
    }


def _usage(usage: Usage) -> Document:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _missing_step(row: StepResultRow, error: str) -> MissingStep:
    return MissingStep(
        position=row.step_position,
        name=row.step_name,
        severity=row.severity_level,
        is_critical=row.is_critical,
        weight=row.weight,
        error=error,
        usage=_usage_of_row(row),
    )


def _usage_of_row(row: StepResultRow) -> Usage:
    usage = cast("Mapping[str, int]", row.raw_result["usage"])
    return Usage(usage["prompt_tokens"], usage["completion_tokens"])


def _judged_step(row: StepResultRow, points: tuple[ControlPoint, ...]) -> StoredStep:
    gating = cast("Mapping[str, int]", row.raw_result["gating"])
    finding = StepFinding(
        traite=row.traite,
        conforme=Conforme(row.conforme),
        score=cast("int", row.score),  # a judged step has one
        niveau_conformite=Niveau(row.niveau_conformite),
        points=points,
        commentaire_global=row.commentaire_global,
        minutages=tuple(row.minutages),
        mots_cles_trouves=tuple(row.mots_cles_trouves),
        erreurs_transcription_tolerees=row.erreurs_transcription_tolerees,
    )
    return StoredStep(
        position=row.step_position,
        name=row.step_name,
        severity=row.severity_level,
        is_critical=row.is_critical,
        weight=row.weight,
        finding=finding,
        usage=_usage_of_row(row),
        stats=GatingStats(**gating),  # type: ignore[arg-type]  # as `asdict` wrote them
    )


def _point(row: ControlPointRow, citations: tuple[Citation, ...]) -> ControlPoint:
    return ControlPoint(
        point=row.point,
        statut=Statut(row.statut),
        commentaire=row.commentaire,
        citations=citations,
        minutages=tuple(row.minutages),
        erreur_transcription_notee=row.erreur_transcription_notee,
        variation_phonetique_utilisee=row.variation_phonetique_utilisee,
    )


def _citation(row: CitationRow) -> Citation:
    return Citation(**{name: getattr(row, name) for name in _CITATION_COLUMNS})


_CONTEXT = (
    select(
        AuditRow.completed_at,
        AuditRow.recordings_count,
        AuditRow.timeline_chunks,
        AuditRow.coverage,
        FicheCacheRow.prospect_prenom,
        FicheCacheRow.prospect_nom,
        FicheCacheRow.groupe,
    )
    .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
    .where(AuditRow.id == bindparam("audit"))
)


def write_summary(session: Session, audit_id: int, now: datetime) -> Compliance:
    """`now` is when the audit ended, unless it had ended before."""
    return write_summary_of(
        session, get_audit(session, audit_id), stored_steps(session, audit_id), now
    )


def write_summary_of(
    session: Session, found: AuditRecord, steps: Sequence[StoredStep], now: datetime, **more: object
) -> Compliance:
    """The same of what has been read already; `more` columns are written with it."""
    columns = summary_columns(_result_context(session, found, now), steps)
    update_audit_row(session, found.summary.audit_id, {**columns, **more})
    return compliance_of(steps)


def _result_context(session: Session, found: AuditRecord, now: datetime) -> ResultContext:
    audit = found.summary
    row = execute(session, _CONTEXT, {"audit": audit.audit_id}).one()
    return ResultContext(
        audit_id=audit.audit_id,
        tracking_id=audit.tracking_id,
        config_id=audit.audit_config_id,
        config=found.config,
        fiche_id=audit.fiche_id,
        prospect_name=" ".join(filter(None, (row.prospect_prenom, row.prospect_nom))),
        groupe=row.groupe,
        use_rlm=found.use_rlm,
        transcript_mode=found.transcript_mode,
        started_at=found.started_at,
        completed_at=row.completed_at or now,
        recordings=row.recordings_count or 0,
        chunks=row.timeline_chunks or 0,
        coverage=row.coverage,
    )


def add_review(session: Session, place: StepLocation, entry: ReviewEntry, now: datetime) -> None:
    values = {
        **{f"previous_{name}": value for name, value in entry.previous.items()},
        **{f"override_{name}": value for name, value in entry.override.items()},
    }
    session.add(
        HumanReviewRow(
            audit_id=place.audit_id,
            step_position=place.position,
            reviewed_at=now,
            reviewer=entry.reviewer,
            reason=entry.reason,
            kind="step" if entry.index is None else "control_point",
            control_point_index=entry.index,
            point=entry.point,
            **values,
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
    """`verdicts` before and after; `point` is the control point's text, for a rerun of one."""
    place = rerun.place
    session.add(
        RerunEventRow(
            audit_id=place.audit_id,
            step_position=place.position,
            occurred_at=now,
            kind="step_rerun" if place.point is None else "control_point_rerun",
            rerun_id=rerun.rerun_id,
            event_id=rerun.event_id,
            custom_prompt=rerun.instructions,
            control_point_index=place.point,
            point=point,
            tokens=tokens,
            previous=dict(verdicts[0]),
            next=dict(verdicts[1]),
        )
    )
    session.flush()


def has_rerun(session: Session, rerun_id: str) -> bool:
    """Whether the rerun has been carried out."""
    return (
        session.scalar(select(RerunEventRow.id).where(RerunEventRow.rerun_id == rerun_id))
        is not None
    )


def history_by_step(session: Session, audit_id: int) -> dict[int, StepHistory]:
    """By the position of the step; those of other steps are empty."""
    histories: dict[int, StepHistory] = defaultdict(StepHistory)
    histories.update(
        {
            position: history
            for (_, position), history in histories_of_audits(session, [audit_id]).items()
        }
    )
    return histories


def histories_of_audits(
    session: Session, audit_ids: Sequence[int]
) -> dict[tuple[int, int], StepHistory]:
    """Of many audits: by audit and position. Those of other steps are empty."""
    histories: dict[tuple[int, int], StepHistory] = defaultdict(StepHistory)
    reviews = select(HumanReviewRow).where(among(session, HumanReviewRow.audit_id, audit_ids))
    for row in session.scalars(reviews.order_by(HumanReviewRow.id)):
        histories[row.audit_id, row.step_position].human_review.append(_review(row))
    reruns = select(RerunEventRow).where(among(session, RerunEventRow.audit_id, audit_ids))
    for row in session.scalars(reruns.order_by(RerunEventRow.id)):
        histories[row.audit_id, row.step_position].rerun_history.append(_rerun(row))
    return histories


def _review(row: HumanReviewRow) -> Document:
    names = STEP_FIELDS if row.control_point_index is None else POINT_FIELDS
    return {
        "at": iso(row.reviewed_at),
        "by": row.reviewer,
        "reason": row.reason,
        "kind": row.kind,
        **_of_point(row.control_point_index, row.point),
        "previous": {name: getattr(row, f"previous_{name}") for name in names},
        "override": {name: getattr(row, f"override_{name}") for name in names},
    }


def _rerun(row: RerunEventRow) -> Document:
    return {
        "at": iso(row.occurred_at),
        "kind": row.kind,
        "rerun_id": row.rerun_id,
        "event_id": row.event_id,
        "step_position": row.step_position,
        **_of_point(row.control_point_index, row.point),
        "custom_prompt": row.custom_prompt,
        "previous": dict(row.previous),
        "next": dict(row.next),
    }


def _of_point(index: int | None, point: str | None) -> Document:
    return {} if index is None else {"control_point_index": index, "point": point}
