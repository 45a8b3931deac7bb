"""Apply a run to its end, or until what is left is due so late that somebody else may come back for it."""

from collections.abc import Sequence
from datetime import timedelta

from automation_pipeline.pricing.domain.failures import Failure, FailureKind
from automation_pipeline.pricing.domain.work import PutBack, Settled, Terms, WorkTarget, overdue
from automation_pipeline.pricing.ports import Desk, Storefront
from automation_pipeline.pricing.stages.work_through import LOOK_AGAIN_SECONDS, Wait, work_through
from automation_pipeline.pricing.store.beginnings import tell_attempts, terms_of
from automation_pipeline.pricing.store.chunks import claim_chunk, forget_beginnings, outlook
from automation_pipeline.pricing.store.endings import end_run, give_up_rest
from automation_pipeline.pricing.store.holds import Hold, extend_hold, held_run, release_hold
from automation_pipeline.pricing.store.settling import settle
from automation_pipeline.pricing.store.shops import is_shop_paused
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time

CANCELLED = Failure(FailureKind.CANCELLED, "The run was cancelled before it was tried.", retryable=False)


async def apply_run(hold: Hold, *, front: Storefront, database: Database) -> bool:
    """Whether it is over. If not, the run says from when on it is to be gone on with. LostHoldError: somebody else
    works on it."""
    async with front.open() as shop:
        return await work_through(_Applying(hold, front, database), desk=Desk(shop, front, database))


class _Applying:
    def __init__(self, hold: Hold, front: Storefront, database: Database) -> None:
        self._hold, self._front, self._database = hold, front, database

    def begin(self) -> None:
        """`work_run` has put it in order."""

    def terms(self) -> Terms:
        with self._database.reading() as session:
            return terms_of(session, self._hold.run_id)

    def keep(self) -> bool:
        with self._database.transaction() as session:
            extend_hold(session, self._hold, self._front.knobs.lease_seconds)
            run = held_run(session, self._hold)
            return run.cancel_requested_at is None and not is_shop_paused(session, run.shop)

    def take(self) -> Sequence[WorkTarget] | Wait:
        """What has taken too long is given up on the way."""
        with self._database.transaction() as session:
            run, now = held_run(session, self._hold), database_time(session)
            if run.cancel_requested_at is not None:
                give_up_rest(session, run, CANCELLED, run.cancelled_by or "worker", now)
            elif is_shop_paused(session, run.shop):
                return Wait(None)
            claimed = claim_chunk(session, run.id, "worker", now)
            tell_attempts(session, run, claimed, now)
            late = overdue(claimed, now)
            settle(session, run, late, now)
            gone = {one.target.id for one in late}
            in_time = [target for target in claimed if target.id not in gone]
            if in_time:
                return in_time
            if end_run(session, run, now, reconciles=self._front.knobs.reconciles):
                release_hold(session, self._hold)
                return []
            left = outlook(session, run.id)
            due_in = (left.next_at - now).total_seconds() if left.next_at else 0.0
            return Wait(due_in if due_in > 0 else LOOK_AGAIN_SECONDS)

    def settle(self, settled: Sequence[Settled]) -> None:
        retries = sum(isinstance(one, PutBack) and one.failure is not None for one in settled)
        if retries:
            self._front.meter.count("rules_target_retries_total", retries, kind="automatic")
        with self._database.transaction() as session:
            settle(session, held_run(session, self._hold), settled, database_time(session))

    def give_up(self, critical: Failure) -> None:
        with self._database.transaction() as session:
            run = held_run(session, self._hold)
            give_up_rest(session, run, critical, "worker", database_time(session))

    def leave(self, seconds: float | None) -> None:
        with self._database.transaction() as session:
            run = held_run(session, self._hold)
            run.resume_at = None if seconds is None else database_time(session) + timedelta(seconds=seconds)
            session.flush()
            forget_beginnings(session, run.id)
            release_hold(session, self._hold)
