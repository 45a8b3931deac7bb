"""Take back the prices that a run has applied and somebody wants gone: the former ones are written again."""

from collections.abc import Sequence
from datetime import timedelta

from automation_pipeline.pricing.domain.failures import Failure
from automation_pipeline.pricing.domain.rule import OnDrift
from automation_pipeline.pricing.domain.rule_run import Wish
from automation_pipeline.pricing.domain.work import Applied, Settled, Terms, WorkTarget
from automation_pipeline.pricing.ports import Desk, Storefront
from automation_pipeline.pricing.stages.work_through import LOOK_AGAIN_SECONDS, Wait, work_through
from automation_pipeline.pricing.store.holds import Hold, extend_hold, held_run, release_hold
from automation_pipeline.pricing.store.rollback_ends import end_rollback
from automation_pipeline.pricing.store.rollbacks import (
    claim_applied,
    leave_all_wished,
    release_writing,
    rollback_outlook,
    settle_back,
)
from automation_pipeline.pricing.store.shops import is_shop_paused
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time


async def take_back_prices(hold: Hold, *, front: Storefront, database: Database) -> bool:
    """Whether it is over. If not, the run says from when on it is to be gone on with. LostHoldError: somebody else
    works on it. Every price is read before it is written, so that it may be repeated after a crash."""
    async with front.open() as shop:
        return await work_through(_Rollback(hold, front, database), desk=Desk(shop, front, database))


class _Rollback:
    def __init__(self, hold: Hold, front: Storefront, database: Database) -> None:
        self._hold, self._front, self._database = hold, front, database
        self._asked_for = 0

    def begin(self) -> None:
        with self._database.transaction() as session:
            run = held_run(session, self._hold)
            release_writing(session, run.id)
            run.resume_at = None

    def terms(self) -> Terms:
        """Guardrails do not count: the former price stood once, and is wanted back."""
        with self._database.transaction() as session:
            run = held_run(session, self._hold)
            self._asked_for = run.rollbacks
            return Terms(OnDrift.OVERWRITE if run.rollback_force else OnDrift.REFUSE, None, takes_back=True)

    def keep(self) -> bool:
        with self._database.transaction() as session:
            extend_hold(session, self._hold, self._front.knobs.lease_seconds)
            run = held_run(session, self._hold)
            is_same = run.wish == Wish.ROLLBACK and run.rollbacks == self._asked_for
            return is_same and not is_shop_paused(session, run.shop)

    def take(self) -> Sequence[WorkTarget] | Wait:
        with self._database.transaction() as session:
            run, now = held_run(session, self._hold), database_time(session)
            if is_shop_paused(session, run.shop):
                return Wait(None)
            claimed = claim_applied(session, run.id, now)
            if claimed:
                return claimed
            left = rollback_outlook(session, run.id)
            if left.queued:
                due_in = (left.next_at - now).total_seconds() if left.next_at else 0.0
                return Wait(due_in if due_in > 0 else LOOK_AGAIN_SECONDS)
            end_rollback(session, run, now)
            release_hold(session, self._hold)
            return []

    def settle(self, settled: Sequence[Settled]) -> None:
        taken_back = sum(isinstance(one, Applied) for one in settled)
        with self._database.transaction() as session:
            run = held_run(session, self._hold)
            settle_back(session, run, settled, database_time(session))
        if taken_back:
            self._front.meter.count("rules_rollback_count_total", taken_back, project=run.project_id)

    def give_up(self, critical: Failure) -> None:
        left = {"error_message": critical.message, "error_type": critical.kind, "error_retryable": False}
        with self._database.transaction() as session:
            leave_all_wished(session, held_run(session, self._hold).id, left)

    def leave(self, seconds: float | None) -> None:
        with self._database.transaction() as session:
            run = held_run(session, self._hold)
            run.resume_at = None if seconds is None else database_time(session) + timedelta(seconds=seconds)
            session.flush()
            release_hold(session, self._hold)
