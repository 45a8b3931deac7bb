"""How each project's price changes fare: what alerts and gauges are made of. As many queries whatever there is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Text, cast, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.alerts import RATE_LIMIT_WINDOW, Health
from automation_pipeline.pricing.domain.circuit import CircuitState
from automation_pipeline.pricing.domain.dead_letters import KEPT_FOR
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.run_result import counts_for_success
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES, RULE_RUN, RunState, TargetState
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, ShopRow
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.transitions import TransitionRow

SUCCESS_WINDOW = timedelta(hours=1)
_SETTLED = (TargetState.APPLIED, TargetState.FAILED, TargetState.ROLLED_BACK)


def health_of_projects(session: Session, now: datetime) -> dict[str, Health]:
    """By project; one of which there is nothing to say is not there."""
    tried, letters = _tried(session, now), dead_letter_counts(session, now)
    shops, shops_of_projects = session.scalars(select(ShopRow)).all(), _shops_of_projects(session, now)
    refused = _refused(shops, shops_of_projects, database_time(session))
    open_circuits = _open_circuits(shops, shops_of_projects)
    applied = Counter({project: count for (project, is_applied), count in tried.items() if is_applied})
    failed = Counter({project: count for (project, is_applied), count in tried.items() if not is_applied})
    return {
        project: Health(
            applied=applied[project],
            failed=failed[project],
            dead_letters=letters.get(project, 0),
            rate_limits=refused.get(project, 0),
            open_circuit=open_circuits.get(project),
        )
        for project in sorted({*applied, *failed, *letters, *refused, *open_circuits})
    }


def dead_letter_counts(session: Session, now: datetime) -> Mapping[str, int]:
    """By project, those that nobody has acknowledged and that are still kept."""
    query = (
        select(RuleTargetRow.project_id, func.count())
        .join(RuleRunRow, RuleRunRow.id == RuleTargetRow.rule_run_id)
        .where(
            RuleTargetRow.status == TargetState.FAILED,
            RuleTargetRow.acknowledged_at.is_(None),
            RuleTargetRow.last_attempt >= now - KEPT_FOR,
            RuleRunRow.status != RunState.ROLLED_BACK,
        )
        .group_by(RuleTargetRow.project_id)
    )
    return dict(iter(session.execute(query).tuples()))


def _tried(session: Session, now: datetime) -> Counter[tuple[str, bool]]:
    """How many targets were applied, and how many not, in the last cycles of the runs that ended lately. One that was
    rolled back since was applied then."""
    began_at = (
        select(func.max(TransitionRow.at))
        .where(
            TransitionRow.machine == RULE_RUN.name,
            TransitionRow.entity_id == cast(RuleRunRow.id, Text),
            TransitionRow.to_state == RunState.APPLYING,
        )
        .scalar_subquery()
    )
    ended = (
        select(RuleRunRow.id, RuleRunRow.project_id, RuleRunRow.retry_cycle, began_at.label("began_at"))
        .where(RuleRunRow.finished_at > now - SUCCESS_WINDOW, RuleRunRow.status.not_in(ACTIVE_RUN_STATES))
        .cte("ended")
    )
    in_last_cycle = or_(ended.c.retry_cycle == 0, RuleTargetRow.last_attempt >= ended.c.began_at)
    query = (
        select(ended.c.project_id, RuleTargetRow.status, RuleTargetRow.error_type, func.count())
        .join(RuleTargetRow, RuleTargetRow.rule_run_id == ended.c.id)
        .where(RuleTargetRow.status.in_(_SETTLED), in_last_cycle)
        .group_by(ended.c.project_id, RuleTargetRow.status, RuleTargetRow.error_type)
    )
    counts: Counter[tuple[str, bool]] = Counter()
    for project, status, error, count in session.execute(query).tuples():
        then = TargetState.APPLIED if status == TargetState.ROLLED_BACK else TargetState(status)
        kind = FailureKind(error) if then is TargetState.FAILED else None
        if counts_for_success(then, kind):
            counts[project, then is TargetState.APPLIED] += count
    return counts


def _shops_of_projects(session: Session, now: datetime) -> list[tuple[str, str]]:
    """Pairs of a project and a shop where it has a run at work, or had one in the last minutes."""
    is_at_work = or_(RuleRunRow.status.in_(ACTIVE_RUN_STATES), RuleRunRow.wish.is_not(None))
    has_just_ended = RuleRunRow.finished_at > now - RATE_LIMIT_WINDOW
    query = select(RuleRunRow.project_id, RuleRunRow.shop).where(or_(is_at_work, has_just_ended)).distinct()
    return list(session.execute(query).tuples())


def _refused(shops: Sequence[ShopRow], shops_of_projects: Sequence[tuple[str, str]], now: datetime) -> dict[str, int]:
    """By project, the refusals of its shops in the last minutes."""
    since = (now - RATE_LIMIT_WINDOW).timestamp()
    lately = {shop.shop: sum(at > since for at in shop.refusals) for shop in shops}
    refused: Counter[str] = Counter()
    for project, shop in shops_of_projects:
        refused[project] += lately.get(shop, 0)
    return {project: count for project, count in refused.items() if count}


def _open_circuits(shops: Sequence[ShopRow], shops_of_projects: Sequence[tuple[str, str]]) -> dict[str, str]:
    not_closed = {shop.shop for shop in shops if shop.circuit != CircuitState.CLOSED}
    return {project: shop for project, shop in shops_of_projects if shop in not_closed}
