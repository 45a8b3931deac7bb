"""The worker of a run: choose the next action, process its targets, apply or roll back."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.core.metrics import Meter, observe
from automation_pipeline.pricing import events
from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.models.runs import (
    APPLY_MS,
    QUEUE_MS,
    PricingRunState,
    RuleRun,
    RuleTrigger,
    RunAction,
    RunTimes,
)
from automation_pipeline.pricing.models.shop import CANCELLED, CallFailure
from automation_pipeline.pricing.planning import plan_run
from automation_pipeline.pricing.ports import ApplyContext, Storefront
from automation_pipeline.pricing.queries.runs import (
    LostRunClaimError,
    PricingRunBusyError,
    RuleBusyError,
    RunClaim,
    blocking_reason,
    claim_run,
    claimed_run,
    extend_claim,
    get_run,
    locked_run,
    release_claim,
    seconds_until_free,
)
from automation_pipeline.pricing.queries.shops import is_shop_paused
from automation_pipeline.pricing.queries.targets import (
    abandon_rollback,
    claim_applied,
    claim_chunk,
    open_rollback_targets,
    open_targets,
    release_writing,
    requeue_abandoned,
    reset_start_times,
    settle,
    settle_rollback,
)
from automation_pipeline.pricing.queries.transitions import (
    apply_terms_of,
    begin_applying,
    begin_retry,
    end_rollback,
    end_run,
    give_up_rest,
    record_attempts,
    requester_of,
)
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    ApplyTerms,
    PromotionOverError,
    RequeuedResult,
    TargetOutcome,
    WorkTarget,
    overdue_targets,
)
from automation_pipeline.pricing.runs import queue_run
from automation_pipeline.pricing.shop_calls import apply_chunk
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue

# How often it is seen whether the work is still wanted, and whether what waits is due.
LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class WaitForTargets:
    """Until something is due; None: nobody knows, for somebody has paused the shop."""

    seconds: float | None


class TargetWork(Protocol):
    """What is done with the targets, each part in a transaction of its own under the claim:
    LostRunClaimError, when the run is somebody else's."""

    def begin(self) -> None:
        """What a lost worker has left is put in order."""
        ...

    def terms(self) -> ApplyTerms:
        """Of the targets that are taken next: people change their minds."""
        ...

    def keep(self) -> bool:
        """Keep the claim; whether the targets that were taken last are still wanted. Asked before
        each write."""
        ...

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        """Those that are due. None at all: it is over, and the claim is given back."""
        ...

    def settle(self, settled: Sequence[TargetOutcome]) -> None: ...

    def give_up(self, critical: CallFailure) -> None:
        """The shop would refuse everything."""
        ...

    def leave(self, seconds: float | None) -> None:
        """Give the claim back, and say when somebody is to come back for the rest."""
        ...


async def process_targets(work: TargetWork, *, context: ApplyContext) -> bool:
    """Whether it is over; if not, what is left is due too late to stay for it."""
    worker = _TargetLoop(work, context)
    working, beating = asyncio.ensure_future(worker.work()), asyncio.ensure_future(worker.beat())
    try:
        await asyncio.wait({working, beating}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await beating
        return await working
    finally:
        for task in (working, beating):
            task.cancel()
        await asyncio.gather(working, beating, return_exceptions=True)


class _TargetLoop:
    def __init__(self, work: TargetWork, context: ApplyContext) -> None:
        self._work, self._context, self._options = work, context, context.front.options

    async def beat(self) -> None:
        """Until the claim is gone: given back a moment ago, or lost, which the work finds out before
        its next write."""
        while True:
            with suppress(LostRunClaimError):
                await asyncio.to_thread(self._work.keep)
            await asyncio.sleep(min(self._options.lease_seconds / 4, LOOK_AGAIN_SECONDS))

    async def work(self) -> bool:
        await asyncio.to_thread(self._work.begin)
        waited = 0.0
        while True:
            step = await asyncio.to_thread(self._work.take)
            if isinstance(step, WaitForTargets):
                if (
                    step.seconds is None
                    or waited + step.seconds > self._options.longest_pause_seconds
                ):
                    await asyncio.to_thread(self._work.leave, step.seconds)
                    return False
                pause = min(step.seconds, LOOK_AGAIN_SECONDS)
                waited += pause
                await asyncio.sleep(pause)
            elif not step:
                return True
            else:
                waited = 0.0
                if not await self._goes_on_after(step, await asyncio.to_thread(self._work.terms)):
                    return False

    async def _goes_on_after(self, targets: Sequence[WorkTarget], terms: ApplyTerms) -> bool:
        async def write_down(settled: Sequence[TargetOutcome]) -> None:
            await asyncio.to_thread(self._work.settle, settled)

        async def is_wanted() -> bool:
            return await asyncio.to_thread(self._work.keep)

        halt = await apply_chunk(
            targets, terms, context=self._context, settle=write_down, is_wanted=is_wanted
        )
        if halt is None:
            return True
        if halt.critical is None:
            await asyncio.to_thread(self._work.leave, halt.resting_seconds)
            return False
        await asyncio.to_thread(self._work.give_up, halt.critical)
        return True


async def apply_run(claim: RunClaim, *, front: Storefront, database: Database) -> bool:
    """Whether it is over. If not, the run says from when on it is to be gone on with.
    LostRunClaimError: somebody else works on it."""
    async with front.open() as shop:
        return await process_targets(
            _Applying(claim, front, database), context=ApplyContext(shop, front, database)
        )


class _Applying:
    def __init__(self, claim: RunClaim, front: Storefront, database: Database) -> None:
        self._claim, self._front, self._database = claim, front, database

    def begin(self) -> None:
        """`work_run` has put it in order."""

    def terms(self) -> ApplyTerms:
        with self._database.reading() as session:
            return apply_terms_of(session, self._claim.run_id)

    def keep(self) -> bool:
        with self._database.transaction() as session:
            extend_claim(session, self._claim, self._front.options.lease_seconds)
            run = claimed_run(session, self._claim)
            return run.cancel_requested_at is None and not is_shop_paused(session, run.shop)

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        """What has taken too long is given up on the way."""
        with self._database.transaction() as session:
            run, now = claimed_run(session, self._claim), database_time(session)
            if run.cancel_requested_at is not None:
                give_up_rest(session, run, CANCELLED, run.cancelled_by or "worker", now)
            elif is_shop_paused(session, run.shop):
                return WaitForTargets(None)
            claimed = claim_chunk(session, run.id, "worker", now)
            record_attempts(session, run, claimed, now)
            late = overdue_targets(claimed, now)
            settle(session, run, late, now)
            gone = {one.target.id for one in late}
            in_time = [target for target in claimed if target.id not in gone]
            if in_time:
                return in_time
            if end_run(session, run, now, reconciles=self._front.options.reconciles):
                release_claim(session, self._claim)
                return []
            left = open_targets(session, run.id)
            due_in = (left.next_at - now).total_seconds() if left.next_at else 0.0
            return WaitForTargets(due_in if due_in > 0 else LOOK_AGAIN_SECONDS)

    def settle(self, settled: Sequence[TargetOutcome]) -> None:
        retries = sum(
            isinstance(one, RequeuedResult) and one.failure is not None for one in settled
        )
        if retries:
            self._front.meter.count("rules_target_retries_total", retries, kind="automatic")
        with self._database.transaction() as session:
            settle(session, claimed_run(session, self._claim), settled, database_time(session))

    def give_up(self, critical: CallFailure) -> None:
        with self._database.transaction() as session:
            run = claimed_run(session, self._claim)
            give_up_rest(session, run, critical, "worker", database_time(session))

    def leave(self, seconds: float | None) -> None:
        with self._database.transaction() as session:
            run = claimed_run(session, self._claim)
            run.resume_at = (
                None if seconds is None else database_time(session) + timedelta(seconds=seconds)
            )
            session.flush()
            reset_start_times(session, run.id)
            release_claim(session, self._claim)


async def roll_back_prices(claim: RunClaim, *, front: Storefront, database: Database) -> bool:
    """Whether it is over. If not, the run says from when on it is to be gone on with.
    LostRunClaimError: somebody else works on it. Every price is read before it is written, so that it
    may be repeated after a crash."""
    async with front.open() as shop:
        return await process_targets(
            _Rollback(claim, front, database), context=ApplyContext(shop, front, database)
        )


class _Rollback:
    def __init__(self, claim: RunClaim, front: Storefront, database: Database) -> None:
        self._claim, self._front, self._database = claim, front, database
        self._asked_for = 0

    def begin(self) -> None:
        with self._database.transaction() as session:
            run = claimed_run(session, self._claim)
            release_writing(session, run.id)
            run.resume_at = None

    def terms(self) -> ApplyTerms:
        """Guardrails do not count: the former price stood once, and is wanted back."""
        with self._database.transaction() as session:
            run = claimed_run(session, self._claim)
            self._asked_for = run.rollbacks
            return ApplyTerms(
                OnDrift.OVERWRITE if run.rollback_force else OnDrift.REFUSE, None, takes_back=True
            )

    def keep(self) -> bool:
        with self._database.transaction() as session:
            extend_claim(session, self._claim, self._front.options.lease_seconds)
            run = claimed_run(session, self._claim)
            is_same = run.wish == RunAction.ROLLBACK and run.rollbacks == self._asked_for
            return is_same and not is_shop_paused(session, run.shop)

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        with self._database.transaction() as session:
            run, now = claimed_run(session, self._claim), database_time(session)
            if is_shop_paused(session, run.shop):
                return WaitForTargets(None)
            claimed = claim_applied(session, run.id, now)
            if claimed:
                return claimed
            left = open_rollback_targets(session, run.id)
            if left.queued:
                due_in = (left.next_at - now).total_seconds() if left.next_at else 0.0
                return WaitForTargets(due_in if due_in > 0 else LOOK_AGAIN_SECONDS)
            end_rollback(session, run, now)
            release_claim(session, self._claim)
            return []

    def settle(self, settled: Sequence[TargetOutcome]) -> None:
        taken_back = sum(isinstance(one, AppliedResult) for one in settled)
        with self._database.transaction() as session:
            run = claimed_run(session, self._claim)
            settle_rollback(session, run, settled, database_time(session))
        if taken_back:
            self._front.meter.count(
                "rules_rollback_count_total", taken_back, project=run.project_id
            )

    def give_up(self, critical: CallFailure) -> None:
        left = {
            "error_message": critical.message,
            "error_type": critical.kind,
            "error_retryable": False,
        }
        with self._database.transaction() as session:
            abandon_rollback(session, claimed_run(session, self._claim).id, left)

    def leave(self, seconds: float | None) -> None:
        with self._database.transaction() as session:
            run = claimed_run(session, self._claim)
            run.resume_at = (
                None if seconds is None else database_time(session) + timedelta(seconds=seconds)
            )
            session.flush()
            release_claim(session, self._claim)


def observe_durations(meter: Meter, run: RuleRun) -> None:
    """Once a run: a retry begins whenever somebody asks for it, and the pause before it is nobody's
    work."""
    if run.retry_cycle:
        return
    times = RunTimes(run.queued_at, run.started_at, run.finished_at)
    for spread, took in ((APPLY_MS, times.apply_ms), (QUEUE_MS, times.queue_ms)):
        if took is not None:
            observe(meter, spread, took)


# A run has a few acts at most; more would be a circle.
MAX_ACTS = 10
# How long one waits that another run of its rule comes before.
NEXT_TURN = timedelta(seconds=60)


class _Act(StrEnum):
    PLAN = "plan"
    APPLY = "apply"
    TAKE_BACK = "take back"


async def work_run(
    run_id: int, *, front: Storefront, database: Database, clock: Clock, owner: str
) -> RuleRun:
    """How it stands when nothing is left to be done, or nothing yet: then it says when it is to be
    gone on with. PricingRunBusyError: another worker holds the claim."""
    worker = _Worker(run_id, front, database, clock, owner)
    for _ in range(MAX_ACTS):
        if not await worker.act():
            break
    return worker.standing()


class _Worker:
    def __init__(
        self, run_id: int, front: Storefront, database: Database, clock: Clock, owner: str
    ) -> None:
        self._run_id, self._front, self._database, self._clock, self._owner = (
            run_id,
            front,
            database,
            clock,
            owner,
        )

    async def act(self) -> bool:
        """Whether there may be more to be done."""
        act = self._next_act()
        if act is None:
            return False
        claim = self._take()
        try:
            if not self._begin(claim, act):
                return True
            if act is _Act.PLAN:
                return await self._plan_and_queue(claim)
            work = roll_back_prices if act is _Act.TAKE_BACK else apply_run
            is_over = await work(claim, front=self._front, database=self._database)
            if is_over and act is _Act.APPLY:
                observe_durations(self._front.meter, self.standing())
            return is_over
        finally:
            self._release(claim)

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

    async def _plan_and_queue(self, claim: RunClaim) -> bool:
        if not self._has_its_turn(claim):
            return False
        beating = asyncio.create_task(self._beat(claim))
        try:
            await plan_run(
                self._run_id, front=self._front, database=self._database, clock=self._clock
            )
        finally:
            beating.cancel()
        with self._database.reading() as session:
            actor, force = requester_of(session, self._run_id)
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
                _postpone(session, claimed_run(session, claim), sentence_of(busy))
            return False
        except (ConflictError, InvalidInputError) as refusal:
            self._note(claim, refusal)
            return False
        return True

    async def _beat(self, claim: RunClaim) -> None:
        """A catalogue may take longer to read than a claim lasts."""
        seconds = self._front.options.lease_seconds
        while True:
            await asyncio.sleep(seconds / 4)
            await asyncio.to_thread(self._extend, claim, seconds)

    def _extend(self, claim: RunClaim, seconds: float) -> None:
        with self._database.transaction() as session:
            extend_claim(session, claim, seconds)

    def _has_its_turn(self, claim: RunClaim) -> bool:
        """Another run of the rule would be in the way of what is planned, or make it old."""
        with self._database.transaction() as session:
            run = claimed_run(session, claim)
            why = blocking_reason(session, run.rule_id)
            if why is not None:
                _postpone(session, run, why)
            return why is None

    def _note(self, claim: RunClaim, refusal: Exception) -> None:
        """Why it stays a preview. Whoever approves it, or asks again, begins anew."""
        with self._database.transaction() as session:
            run, now = claimed_run(session, claim), self._clock.now()
            run.wish, run.error_message, run.updated_at = None, sentence_of(refusal), now
            if (
                isinstance(refusal, PromotionOverError)
                and run.trigger == RuleTrigger.SCHEDULE
                and run.scheduled_for
            ):
                enqueue(
                    session,
                    [events.schedule_missed(run.rule_id, run.project_id, run.scheduled_for, now)],
                )

    def _take(self) -> RunClaim:
        with self._database.transaction() as session:
            claim = claim_run(session, self._run_id, self._owner, self._front.options.lease_seconds)
            left = 0.0 if claim else seconds_until_free(session, self._run_id)
        if claim is None:
            raise PricingRunBusyError(
                f"Rule run {self._run_id} is being worked on.", retry_after_seconds=left + 1
            )
        return claim

    def _begin(self, claim: RunClaim, act: _Act) -> bool:
        """False: something else is wanted of the run by now."""
        with self._database.transaction() as session:
            run, now = claimed_run(session, claim), database_time(session)
            if _act_for(run) is not act:
                return False
            run.resume_at = None
            if act is _Act.APPLY:
                self._begin_applying(session, run, now)
            return True

    def _begin_applying(self, session: Session, run: RuleRunRow, now: datetime) -> None:
        meter = self._front.meter
        if run.status == PricingRunState.APPLYING:
            requeue_abandoned(session, run.id, now)
            return
        if run.wish == RunAction.RETRY:
            meter.count("rules_target_retries_total", begin_retry(session, run, now), kind="manual")
        else:
            begin_applying(session, run, now)
        meter.count("rules_apply_count_total", project=run.project_id, trigger=run.trigger)

    def _release(self, claim: RunClaim) -> None:
        with self._database.transaction() as session:
            release_claim(session, claim)


def _postpone(session: Session, run: RuleRunRow, why: str) -> None:
    """It is asked for again, unless it was cancelled meanwhile."""
    if run.wish == RunAction.APPLY:
        run.resume_at, run.error_message = database_time(session) + NEXT_TURN, why


def _act_for(run: RuleRunRow) -> _Act | None:
    status, wish = PricingRunState(run.status), run.wish
    if status is PricingRunState.PREVIEW:
        return _Act.PLAN if wish == RunAction.APPLY and run.cancel_requested_at is None else None
    if status in {PricingRunState.QUEUED, PricingRunState.APPLYING} or wish == RunAction.RETRY:
        return _Act.APPLY
    return _Act.TAKE_BACK if wish == RunAction.ROLLBACK else None
