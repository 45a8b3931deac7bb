"""How runs of rules have gone, and how they stand: numbers for graphs, each by one query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from sqlalchemy import case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.pricing.domain.circuit import CircuitState
from automation_pipeline.pricing.domain.reconciliation import WATCHED_FOR
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.tables import CheckRow, RuleRunRow, ShopRow
from automation_pipeline.storage.elapsed import elapsed_milliseconds

# The longest run that is planned for takes a good hour.
BOUNDS_MS = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000)

Moment = InstrumentedAttribute[datetime | None]


@dataclass(frozen=True)
class Durations:
    """`counts` are cumulative: of those no longer than each of BOUNDS_MS, and of all."""

    counts: Sequence[int]
    total_ms: float


def blocked_variants(session: Session) -> Mapping[str, int]:
    """By project, how many variants its guardrails kept out of runs."""
    query = select(RuleRunRow.project_id, func.sum(RuleRunRow.blocked)).group_by(RuleRunRow.project_id)
    found = session.execute(query.order_by(RuleRunRow.project_id)).tuples()
    return {project: int(blocked or 0) for project, blocked in found}


def apply_durations(session: Session) -> Durations:
    """From the first begin to the last end: the pause before a retry included."""
    return _durations(session, RuleRunRow.started_at, RuleRunRow.finished_at)


def queue_durations(session: Session) -> Durations:
    return _durations(session, RuleRunRow.queued_at, RuleRunRow.started_at)


def queue_age_seconds(session: Session, now: datetime) -> float:
    """Of the run that has been queued the longest; 0 when none is."""
    oldest = session.scalar(select(func.min(RuleRunRow.queued_at)).where(RuleRunRow.status == RunState.QUEUED))
    return 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())


def mismatched_prices(session: Session, now: datetime) -> Mapping[str, int]:
    """What the last check of each run found changed, while runs are watched, by the worst that the check found."""
    lately = CheckRow.checked_at > now - WATCHED_FOR
    newest = select(func.max(CheckRow.id)).where(lately).group_by(CheckRow.rule_run_id)
    query = select(CheckRow.worst, func.sum(CheckRow.mismatches)).where(
        CheckRow.id.in_(newest), CheckRow.worst.is_not(None), CheckRow.mismatches > 0
    )
    found = session.execute(query.group_by(CheckRow.worst)).tuples()
    return {str(worst): int(count or 0) for worst, count in found}


def circuits(session: Session) -> Mapping[str, CircuitState]:
    """By shop."""
    found = session.execute(select(ShopRow.shop, ShopRow.circuit).order_by(ShopRow.shop)).tuples()
    return {shop: CircuitState(state) for shop, state in found}


def _durations(session: Session, since: Moment, until: Moment) -> Durations:
    took = elapsed_milliseconds(since, until)
    which = case(*((took <= bound, place) for place, bound in enumerate(BOUNDS_MS)), else_=len(BOUNDS_MS))
    ended = RuleRunRow.finished_at.is_not(None), since.is_not(None), until.is_not(None)
    found = session.execute(select(which, func.count(), func.sum(took)).where(*ended).group_by(which)).tuples().all()
    by_place = {place: count for place, count, _ in found}
    counts = tuple(accumulate(by_place.get(place, 0) for place in range(len(BOUNDS_MS) + 1)))
    return Durations(counts, sum(float(total) for _, _, total in found))
