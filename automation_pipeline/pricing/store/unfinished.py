"""Runs that want a worker and have none, and what lost workers have left behind in runs that want none."""

from sqlalchemy import Text, and_, cast, exists, literal, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES
from automation_pipeline.pricing.store.holds import RUNS
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, ShopRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.run_requests import RunRequestRow

AT_MOST = 100
# A worker that was asked for takes its run within this time, if it ever does.
STARTS_WITHIN_SECONDS = 60.0

Run = RuleRunRow


def left_alone(session: Session, *, shop: str | None = None) -> list[int]:
    """Those of shops that are not paused, and those to be cancelled wherever. Who waits for a worker that was asked for
    is left waiting."""
    is_active = Run.status.in_(sorted(ACTIVE_RUN_STATES))
    wants_work = or_(is_active, Run.wish.is_not(None))
    is_due = or_(Run.resume_at.is_(None), Run.resume_at <= database_now())
    is_paused = exists().where(ShopRow.shop == Run.shop, ShopRow.paused_at.is_not(None))
    may_go_on = or_(~is_paused, and_(is_active, Run.cancel_requested_at.is_not(None)))
    key = literal("rule-run-") + cast(Run.id, Text) + literal("-") + cast(Run.requests, Text)
    is_asked_for = exists().where(
        RunRequestRow.request_key == key,
        or_(
            RunRequestRow.state == "waiting",
            and_(
                RunRequestRow.state == "taken",
                RunRequestRow.offered_at > database_now(-STARTS_WITHIN_SECONDS),
            ),
        ),
    )
    only = [] if shop is None else [Run.shop == shop]
    query = select(Run.id).where(wants_work, RUNS.is_free(), is_due, may_go_on, ~is_asked_for, *only)
    return list(session.scalars(query.order_by(Run.id).limit(AT_MOST).with_for_update(skip_locked=True)))


def free_variants(session: Session) -> None:
    """Those that a lost worker was writing for a run that was then cancelled: nobody else comes to let go of them."""
    writes = Run.id.in_(select(RuleTargetRow.rule_run_id).where(RuleTargetRow.is_writing))
    is_over = and_(Run.status.not_in(ACTIVE_RUN_STATES), Run.wish.is_(None))
    query = select(Run.id).where(writes, is_over, RUNS.is_free()).with_for_update(skip_locked=True)
    runs = session.scalars(query).all()
    if runs:
        session.execute(
            update(RuleTargetRow)
            .where(among(session, RuleTargetRow.rule_run_id, runs), RuleTargetRow.is_writing)
            .values(is_writing=False)
            .execution_options(synchronize_session=False)
        )
