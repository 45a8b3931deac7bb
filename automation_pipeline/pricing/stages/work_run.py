"""Do with a run whatever is to be done: plan it, queue it, apply it, try it again, take it back. Its row says which."""

import asyncio
from datetime import datetime, timedelta
from enum import StrEnum

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.pricing.domain import rule_events
from automation_pipeline.pricing.domain.promotion import PromotionOverError
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTrigger, Wish
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.pricing.stages.apply_run import apply_run
from automation_pipeline.pricing.stages.plan_run import plan_run
from automation_pipeline.pricing.stages.queue_run import queue_run
from automation_pipeline.pricing.stages.take_back_prices import take_back_prices
from automation_pipeline.pricing.stages.tell_times import tell_times
from automation_pipeline.pricing.store.beginnings import begin_applying, begin_retry, wisher_of
from automation_pipeline.pricing.store.chunks import requeue_abandoned
from automation_pipeline.pricing.store.holds import (
    Hold,
    RunBusyError,
    extend_hold,
    held_run,
    locked_run,
    release_hold,
    seconds_until_free,
    take_hold,
)
from automation_pipeline.pricing.store.rule_activity import RuleBusyError, what_comes_first
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue

# A run has a few acts at most; more would be a circle.
MOST_ACTS = 10
# How long one waits that another run of its rule comes before.
NEXT_TURN = timedelta(seconds=60)


class _Act(StrEnum):
    PLAN = "plan"
    APPLY = "apply"
    TAKE_BACK = "take back"


async def work_run(run_id: int, *, front: Storefront, database: Database, clock: Clock, owner: str) -> RuleRun:
    """How it stands when nothing is left to be done, or nothing yet: then it says when it is to be gone on with.
    RunBusyError: somebody else is at it."""
    worker = _Worker(run_id, front, database, clock, owner)
    for _ in range(MOST_ACTS):
        if not await worker.act():
            break
    return worker.standing()


class _Worker:
    def __init__(self, run_id: int, front: Storefront, database: Database, clock: Clock, owner: str) -> None:
        self._run_id, self._front, self._database, self._clock, self._owner = run_id, front, database, clock, owner

    async def act(self) -> bool:
        """Whether there may be more to be done."""
        act = self._next_act()
        if act is None:
            return False
        hold = self._take()
        try:
            if not self._begin(hold, act):
                return True
            if act is _Act.PLAN:
                return await self._plan_and_queue(hold)
            work = take_back_prices if act is _Act.TAKE_BACK else apply_run
            is_over = await work(hold, front=self._front, database=self._database)
            if is_over and act is _Act.APPLY:
                tell_times(self._front.meter, self.standing())
            return is_over
        finally:
            self._release(hold)

    def standing(self) -> RuleRun:
        with self._database.reading() as session:
            return get_run(session, self._run_id)

    def _next_act(self) -> _Act | None:
        with self._database.transaction() as session:
            run = locked_run(session, self._run_id)
            act = _act_for(run)
            if act is not None and run.shop != self._front.name:
                raise ConflictError(
                    f"Rule run {run.id} is about {run.shop}, and SHOP_API_BASE_URL is {self._front.name}: it is worked "
                    "on where its own shop is configured, or cancelled."
                )
            return act

    async def _plan_and_queue(self, hold: Hold) -> bool:
        if not self._has_its_turn(hold):
            return False
        beating = asyncio.create_task(self._beat(hold))
        try:
            await plan_run(self._run_id, front=self._front, database=self._database, clock=self._clock)
        finally:
            beating.cancel()
        with self._database.reading() as session:
            actor, force = wisher_of(session, self._run_id)
        try:
            queue_run(
                self._run_id,
                database=self._database,
                clock=self._clock,
                actor=actor,
                force=force,
                asks_for_worker=False,
            )
        except RuleBusyError as busy:
            with self._database.transaction() as session:
                _put_off(session, held_run(session, hold), sentence_of(busy))
            return False
        except (ConflictError, InvalidInputError) as refusal:
            self._note(hold, refusal)
            return False
        return True

    async def _beat(self, hold: Hold) -> None:
        """A catalogue may take longer to read than a hold lasts."""
        seconds = self._front.knobs.lease_seconds
        while True:
            await asyncio.sleep(seconds / 4)
            await asyncio.to_thread(self._extend, hold, seconds)

    def _extend(self, hold: Hold, seconds: float) -> None:
        with self._database.transaction() as session:
            extend_hold(session, hold, seconds)

    def _has_its_turn(self, hold: Hold) -> bool:
        """Another run of the rule would be in the way of what is planned, or make it old."""
        with self._database.transaction() as session:
            run = held_run(session, hold)
            why = what_comes_first(session, run.rule_id)
            if why is not None:
                _put_off(session, run, why)
            return why is None

    def _note(self, hold: Hold, refusal: Exception) -> None:
        """Why it stays a preview. Whoever approves it, or asks again, begins anew."""
        with self._database.transaction() as session:
            run, now = held_run(session, hold), self._clock.now()
            run.wish, run.error_message, run.updated_at = None, sentence_of(refusal), now
            if isinstance(refusal, PromotionOverError) and run.trigger == RuleTrigger.SCHEDULE and run.scheduled_for:
                enqueue(session, [rule_events.missed(run.rule_id, run.project_id, run.scheduled_for, now)])

    def _take(self) -> Hold:
        with self._database.transaction() as session:
            hold = take_hold(session, self._run_id, self._owner, self._front.knobs.lease_seconds)
            left = 0.0 if hold else seconds_until_free(session, self._run_id)
        if hold is None:
            raise RunBusyError(f"Rule run {self._run_id} is being worked on.", retry_after_seconds=left + 1)
        return hold

    def _begin(self, hold: Hold, act: _Act) -> bool:
        """False: something else is wanted of the run by now."""
        with self._database.transaction() as session:
            run, now = held_run(session, hold), database_time(session)
            if _act_for(run) is not act:
                return False
            run.resume_at = None
            if act is _Act.APPLY:
                self._begin_applying(session, run, now)
            return True

    def _begin_applying(self, session: Session, run: RuleRunRow, now: datetime) -> None:
        meter = self._front.meter
        if run.status == RunState.APPLYING:
            requeue_abandoned(session, run.id, now)
            return
        if run.wish == Wish.RETRY:
            meter.count("rules_target_retries_total", begin_retry(session, run, now), kind="manual")
        else:
            begin_applying(session, run, now)
        meter.count("rules_apply_count_total", project=run.project_id, trigger=run.trigger)

    def _release(self, hold: Hold) -> None:
        with self._database.transaction() as session:
            release_hold(session, hold)


def _put_off(session: Session, run: RuleRunRow, why: str) -> None:
    """It is asked for again, unless it was cancelled meanwhile."""
    if run.wish == Wish.APPLY:
        run.resume_at, run.error_message = database_time(session) + NEXT_TURN, why


def _act_for(run: RuleRunRow) -> _Act | None:
    status, wish = RunState(run.status), run.wish
    if status is RunState.PREVIEW:
        return _Act.PLAN if wish == Wish.APPLY and run.cancel_requested_at is None else None
    if status in {RunState.QUEUED, RunState.APPLYING} or wish == Wish.RETRY:
        return _Act.APPLY
    return _Act.TAKE_BACK if wish == Wish.ROLLBACK else None
