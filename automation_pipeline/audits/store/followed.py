"""What became of wishes for audits and reruns: how they stand, or the reasons for which they never will."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.store.standings import standings
from automation_pipeline.audits.tables import RerunEventRow
from automation_pipeline.storage.run_requests import refusals, taken


@dataclass(frozen=True)
class RerunStanding:
    """`error`: it came to nothing."""

    begun: bool
    done: bool
    error: str | None = None


def followed(session: Session, tracking_ids: Sequence[str]) -> dict[str, Standing | str]:
    """By tracking id, in that order, of those that have begun or never will."""
    refused, begun = refusals(session, tracking_ids), standings(session, tracking_ids)
    found: dict[str, Standing | str] = {**refused, **begun}
    return {key: found[key] for key in dict.fromkeys(tracking_ids) if key in found}


def followed_reruns(session: Session, rerun_ids: Sequence[str]) -> dict[str, RerunStanding]:
    """All of them: one that nobody knows has not begun."""
    refused, begun = refusals(session, rerun_ids), taken(session, rerun_ids)
    done = set(session.scalars(select(RerunEventRow.rerun_id).where(RerunEventRow.rerun_id.in_(rerun_ids))))
    return {key: RerunStanding(key in begun or key in done, key in done, refused.get(key)) for key in rerun_ids}
