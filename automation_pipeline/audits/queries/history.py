"""Queries of the history of steps: reviews and reruns. Rows are added, never changed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.rules.reviews import (
    POINT_FIELDS,
    STEP_FIELDS,
    Rerun,
    ReviewEntry,
    StepHistory,
)
from automation_pipeline.audits.tables import HumanReviewRow, RerunEventRow
from automation_pipeline.core.clock import iso
from automation_pipeline.storage.statements import among

Document = Mapping[str, object]


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
