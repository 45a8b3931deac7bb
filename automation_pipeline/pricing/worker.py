"""The worker of a run: plans, applies or rolls back, until the run needs no further action."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from random import Random
from typing import Protocol

from automation_pipeline.core.background import together
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.core.metrics import Meter, observe
from automation_pipeline.pricing.events import schedule_missed
from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    APPLY_MS,
    QUEUE_MS,
    LostRunClaimError,
    PricingRunBusyError,
    PricingRunState,
    RuleBusyError,
    RuleRun,
    RuleTrigger,
    RunAction,
)
from automation_pipeline.pricing.models.shop import (
    CANCELLED,
    ApplyContext,
    CallFailure,
    CallResult,
    CallWithdrawnError,
    FailureSignal,
    Price,
    Prices,
    PriceWrite,
    PricingContext,
    ShopUnavailableError,
    Written,
    classify_failure,
    price_text,
)
from automation_pipeline.pricing.planning import plan_run
from automation_pipeline.pricing.pricing_rules import policy_of, rule_at
from automation_pipeline.pricing.queries.runs import (
    RunClaim,
    begin_applying,
    begin_retry,
    blocking_reason,
    claim_run,
    claimed_run,
    end_rollback,
    end_run,
    extend_claim,
    get_run,
    locked_run,
    record_attempts,
    release_claim,
    seconds_until_free,
)
from automation_pipeline.pricing.queries.targets import (
    WORKER,
    abandon_rollback,
    claim_applied,
    claim_chunk,
    give_up_rest,
    release_writing,
    requeue_abandoned,
    reset_start_times,
    save_outcomes,
    save_rollback_outcomes,
    waiting_targets,
)
from automation_pipeline.pricing.rules.pacing import CallKind, concurrency
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    ApplyTerms,
    PromotionOverError,
    RequeuedResult,
    TargetOutcome,
    WorkTarget,
    decide_after_failed_call,
    decide_before_write,
    fail_without_variant,
    overdue_targets,
    requeue_unchanged,
)
from automation_pipeline.pricing.runs import queue_run
from automation_pipeline.pricing.shop import Value, call_shop, is_shop_paused, used_budgets
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time

# The interval at which the worker checks whether its work is still wanted and whether a target is due.
POLL_SECONDS = 1.0
# An older price is read again before it is overwritten.
LONGEST_READ_SECONDS = 15.0
# A run needs only a few actions. More of them indicate an endless loop.
MAX_ACTIONS = 10
# The wait for another run of the same rule.
BUSY_RULE_WAIT = timedelta(seconds=60)


class ChunkOwner(Protocol):
    def keep(self) -> bool:
        """Extend the claim, and return whether the targets must still be written."""
        ...

    def save(self, outcomes: Sequence[TargetOutcome]) -> None: ...


@dataclass(frozen=True)
class ApplyHalt:
    """Why no more calls are made: the shop would refuse all of them, or it must not be called for
    `pause_seconds`."""

    critical: CallFailure | None = None
    pause_seconds: float = 0.0


async def apply_chunk(
    targets: Sequence[WorkTarget], terms: ApplyTerms, owner: ChunkOwner, context: ApplyContext
) -> ApplyHalt | None:
    """Apply the targets. Each one gets exactly one outcome. A target without an attempt, because of a
    halt or because it is no longer needed, is requeued unchanged."""
    chunk = _Chunk(terms, owner, context)
    await chunk.apply(targets)
    return chunk.halt


class _Chunk:
    def __init__(self, terms: ApplyTerms, owner: ChunkOwner, context: ApplyContext) -> None:
        self._terms, self._owner, self._context = terms, owner, context
        self._read_at, self._is_stopped, self._throttles = 0.0, False, 0
        self._unsaved, self._saving = list[TargetOutcome](), asyncio.Lock()
        self.halt: ApplyHalt | None = None

    async def apply(self, targets: Sequence[WorkTarget]) -> None:
        await self._save([fail_without_variant(one) for one in targets if one.variant_id is None])
        left = [one for one in targets if one.variant_id is not None]
        if not left:
            return
        shop, ids = self._context.shop, [str(one.variant_id) for one in left]
        read = await self._call(
            CallKind.READ, lambda: shop.prices(ids), shop.costs.reading(len(ids)), left
        )
        if read is None:
            return
        to_write = await self._decide(left, read.value or {})
        products = [list(group) for _, group in groupby(to_write, lambda one: one[0].product_id)]
        full, waiting = self._context.storefront.options.calls_at_once, iter(products)
        async with together() as group:
            for number in range(min(full, len(products))):
                group.create_task(self._write_some(waiting, number, full))

    async def _decide(
        self, targets: Sequence[WorkTarget], prices: Prices
    ) -> list[tuple[WorkTarget, Price]]:
        """Return the targets that must be written, with their current prices."""
        used = await asyncio.to_thread(
            used_budgets,
            self._terms.policy,
            [str(one.variant_id) for one in targets],
            self._context,
        )
        to_write, outcomes = list[tuple[WorkTarget, Price]](), list[TargetOutcome]()
        for target in targets:
            seen = prices.get(str(target.variant_id))
            outcome = decide_before_write(
                target, seen, used.get(str(target.variant_id), Decimal(0)), self._terms
            )
            if outcome is not None:
                outcomes.append(outcome)
            elif seen is not None:
                to_write.append((replace(target, outcome_unknown=False), seen))
        await self._save(outcomes)
        return to_write

    async def _write_some(
        self, products: Iterator[list[tuple[WorkTarget, Price]]], number: int, full: int
    ) -> None:
        """Write products one after the other. `number` is that of the task: while the shop refuses
        calls, the tasks above the reduced concurrency end."""
        for product in products:
            if self.halt is None and not self._is_stopped:
                await self._write(product)
            else:
                await self._requeue([target for target, _ in product])
            if number >= concurrency(self._throttles, full):
                return

    async def _write(self, product: Sequence[tuple[WorkTarget, Price]]) -> None:
        shop, targets = self._context.shop, [target for target, _ in product]
        writes = [
            PriceWrite(str(one.variant_id), one.after, one.writes_compare_at) for one in targets
        ]
        started_at = time.monotonic()
        result = await self._call(
            CallKind.WRITE,
            lambda: shop.write(targets[0].product_id, writes),
            shop.costs.write,
            targets,
        )
        if result is not None:
            milliseconds = round((time.monotonic() - started_at) * 1000)
            await self._save(
                [self._outcome(target, seen, result, milliseconds) for target, seen in product]
            )

    def _outcome(
        self, target: WorkTarget, seen: Price, result: CallResult[Written], milliseconds: int
    ) -> TargetOutcome:
        written = (result.value or {}).get(str(target.variant_id))
        if isinstance(written, CallFailure):
            return decide_after_failed_call(target, written, self._context.random)
        if written is None:
            answer = "nothing about the variant"
        elif written.equals(target.after, with_compare_at=target.writes_compare_at):
            return AppliedResult(
                target, seen, request_id=result.request_id, duration_ms=milliseconds
            )
        else:
            answer = price_text(written.unit_amount, written.currency)
        failure = classify_failure(
            FailureSignal(lost=True), f"The shop's answer to the write contains {answer}."
        )
        return decide_after_failed_call(target, failure, self._context.random)

    async def _call(
        self,
        kind: CallKind,
        call: Callable[[], Awaitable[CallResult[Value]]],
        cost: float,
        targets: Sequence[WorkTarget],
    ) -> CallResult[Value] | None:
        """Return None if there is no usable answer; the targets then have their outcomes."""
        is_wanted = self._may_read if kind is CallKind.READ else self._may_write
        try:
            result = await call_shop(call, cost, self._context, kind=kind, is_wanted=is_wanted)
        except CallWithdrawnError:
            await self._requeue(targets)
            return None
        except ShopUnavailableError as unavailable:
            self.halt = self.halt or ApplyHalt(pause_seconds=unavailable.retry_after_seconds or 0.0)
            await self._requeue(targets)
            return None
        failure = result.failure
        if kind is CallKind.WRITE:
            self._throttles = self._throttles + 1 if result.is_throttled else 0
        elif failure is not None:
            failure = replace(failure, outcome_unknown=False)
        if failure is None:
            return result
        if failure.is_critical:
            self.halt = ApplyHalt(critical=failure)
        # Targets that fail together get the same due time, so that they are written together again.
        seed = self._context.random.getrandbits(64)
        await self._save([decide_after_failed_call(one, failure, Random(seed)) for one in targets])
        return None

    async def _may_read(self) -> bool:
        self._read_at = time.monotonic()
        return True

    async def _may_write(self) -> bool:
        self._is_stopped = self._is_stopped or not await asyncio.to_thread(self._owner.keep)
        return not self._is_stopped and time.monotonic() - self._read_at <= LONGEST_READ_SECONDS

    async def _requeue(self, targets: Sequence[WorkTarget]) -> None:
        seconds = self.halt.pause_seconds if self.halt else 0.0
        await self._save([requeue_unchanged(target, seconds) for target in targets])

    async def _save(self, outcomes: Sequence[TargetOutcome]) -> None:
        """Save the outcomes. Those that arrive during a save are saved together by the next one."""
        self._unsaved += outcomes
        async with self._saving:
            batch, self._unsaved = self._unsaved, []
            if batch:
                await asyncio.to_thread(self._owner.save, batch)


@dataclass(frozen=True)
class WaitForTargets:
    """Wait until a target is due. Without `seconds`, wait until the shop is resumed."""

    seconds: float | None


class TargetWork:
    """Applies the targets of a claimed run. Every step is a transaction under the claim; it raises
    LostRunClaimError if another process has taken the claim."""

    def __init__(self, claim: RunClaim, context: ApplyContext) -> None:
        self._claim, self._context = claim, context
        self._options = context.storefront.options

    async def process(self) -> bool:
        """Return whether the work is done. If it is not, the remaining targets are due too late for this
        worker to wait for them."""
        working = asyncio.ensure_future(self._work())
        heartbeat = asyncio.ensure_future(self._send_heartbeats())
        try:
            await asyncio.wait({working, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await heartbeat
            return await working
        finally:
            for task in (working, heartbeat):
                task.cancel()
            await asyncio.gather(working, heartbeat, return_exceptions=True)

    async def _send_heartbeats(self) -> None:
        """Extend the claim regularly. A lost claim is ignored here, because the work notices it before
        its next write."""
        while True:
            with suppress(LostRunClaimError):
                await asyncio.to_thread(self.keep)
            await asyncio.sleep(min(self._options.lease_seconds / 4, POLL_SECONDS))

    async def _work(self) -> bool:
        waited = 0.0
        while True:
            step = await asyncio.to_thread(self.take)
            if isinstance(step, WaitForTargets):
                longest = self._options.longest_pause_seconds
                if step.seconds is None or waited + step.seconds > longest:
                    await asyncio.to_thread(self.leave, step.seconds)
                    return False
                pause = min(step.seconds, POLL_SECONDS)
                waited += pause
                await asyncio.sleep(pause)
                continue
            if not step:
                return True
            waited = 0.0
            halt = await apply_chunk(step, await asyncio.to_thread(self.terms), self, self._context)
            if halt is not None and halt.critical is None:
                await asyncio.to_thread(self.leave, halt.pause_seconds)
                return False
            if halt is not None and halt.critical is not None:
                await asyncio.to_thread(self.give_up, halt.critical)

    @contextmanager
    def _locked(self) -> Generator[tuple[Session, RuleRunRow, datetime]]:
        with self._context.database.transaction() as session:
            yield session, claimed_run(session, self._claim), database_time(session)

    def terms(self) -> ApplyTerms:
        with self._context.database.reading() as session:
            run = session.get_one(RuleRunRow, self._claim.run_id)
            rule = rule_at(session, run.rule_id, run.rule_version)
            return ApplyTerms(rule.on_drift, policy_of(session, run.project_id))

    def keep(self) -> bool:
        """Extend the claim, and return whether the claimed targets must still be written."""
        with self._context.database.transaction() as session:
            run = extend_claim(session, self._claim, self._options.lease_seconds)
            return self._is_requested(run) and not is_shop_paused(session, run.shop)

    def _is_requested(self, run: RuleRunRow) -> bool:
        return run.cancel_requested_at is None

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        """Claim due targets. An empty result means that the run has ended and its claim is released."""
        with self._locked() as (session, run, now):
            if run.cancel_requested_at is not None:
                give_up_rest(session, run.id, CANCELLED, run.cancelled_by or WORKER, now)
            elif is_shop_paused(session, run.shop):
                return WaitForTargets(None)
            claimed = claim_chunk(session, run.id, WORKER, now)
            record_attempts(session, run, claimed, now)
            late = overdue_targets(claimed, now)
            save_outcomes(session, run, late, now)
            late_ids = {one.target.id for one in late}
            in_time = [target for target in claimed if target.id not in late_ids]
            if in_time:
                return in_time
            if end_run(session, run, now, reconciles=self._options.reconciles):
                release_claim(session, self._claim)
                return []
            _, next_at = waiting_targets(session, run.id)
            return _wait_until(next_at, now)

    def save(self, outcomes: Sequence[TargetOutcome]) -> None:
        retries = sum(isinstance(one, RequeuedResult) and bool(one.failure) for one in outcomes)
        if retries:
            self._context.storefront.meter.count(
                "rules_target_retries_total", retries, kind="automatic"
            )
        with self._locked() as (session, run, now):
            save_outcomes(session, run, outcomes, now)

    def give_up(self, failure: CallFailure) -> None:
        with self._locked() as (session, run, now):
            give_up_rest(session, run.id, failure, WORKER, now)

    def leave(self, seconds: float | None) -> None:
        """Release the claim, and store when another worker may continue."""
        with self._locked() as (session, run, now):
            run.resume_at = None if seconds is None else now + timedelta(seconds=seconds)
            session.flush()
            reset_start_times(session, run.id)
            release_claim(session, self._claim)


def _wait_until(due_at: datetime | None, now: datetime) -> WaitForTargets:
    seconds = (due_at - now).total_seconds() if due_at else 0.0
    return WaitForTargets(seconds if seconds > 0 else POLL_SECONDS)


class Rollback(TargetWork):
    """Rolls back the marked targets of a claimed run. Prices are read before they are written, so a
    rollback can be repeated after a crash."""

    _rollbacks = 0

    def terms(self) -> ApplyTerms:
        """Guardrails do not apply, because the original price was in the shop before."""
        with self._locked() as (_, run, _now):
            self._rollbacks = run.rollbacks
            on_drift = OnDrift.OVERWRITE if run.rollback_force else OnDrift.REFUSE
            return ApplyTerms(on_drift, None, is_rollback=True)

    def _is_requested(self, run: RuleRunRow) -> bool:
        """A rollback stops when it is cancelled or when another action is requested."""
        return run.wish == RunAction.ROLLBACK and run.rollbacks == self._rollbacks

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        with self._locked() as (session, run, now):
            if is_shop_paused(session, run.shop):
                return WaitForTargets(None)
            claimed = claim_applied(session, run.id, now)
            if claimed:
                return claimed
            count, next_at = waiting_targets(session, run.id, is_rollback=True)
            if count:
                return _wait_until(next_at, now)
            end_rollback(session, run, now)
            release_claim(session, self._claim)
            return []

    def save(self, outcomes: Sequence[TargetOutcome]) -> None:
        with self._locked() as (session, run, now):
            save_rollback_outcomes(session, run, outcomes, now)
        count = sum(isinstance(one, AppliedResult) for one in outcomes)
        if count:
            meter = self._context.storefront.meter
            meter.count("rules_rollback_count_total", count, project=run.project_id)

    def give_up(self, failure: CallFailure) -> None:
        with self._locked() as (session, run, _now):
            abandon_rollback(session, run.id, failure)


def observe_durations(meter: Meter, run: RuleRun) -> None:
    """Observe the durations of a run once, at the end of its first cycle."""
    if run.retry_cycle == 0:
        for histogram, milliseconds in ((APPLY_MS, run.apply_ms), (QUEUE_MS, run.queue_ms)):
            if milliseconds is not None:
                observe(meter, histogram, milliseconds)


class _Action(StrEnum):
    PLAN = "plan"
    APPLY = "apply"
    ROLL_BACK = "roll back"


def _action_for(run: RuleRunRow) -> _Action | None:
    if run.status == PricingRunState.PREVIEW:
        is_requested = run.wish == RunAction.APPLY and run.cancel_requested_at is None
        return _Action.PLAN if is_requested else None
    if run.status in ACTIVE_RUN_STATES or run.wish == RunAction.RETRY:
        return _Action.APPLY
    return _Action.ROLL_BACK if run.wish == RunAction.ROLLBACK else None


async def work_run(run_id: int, context: PricingContext, owner: str) -> RuleRun:
    """Work on the run until nothing is left to do or until it must wait; `resume_at` is then the time
    to continue. Raises PricingRunBusyError if another worker holds the claim."""
    worker = _RunWorker(run_id, context, owner)
    for _ in range(MAX_ACTIONS):
        if not await worker.run_next_action():
            break
    return worker.run()


class _RunWorker:
    def __init__(self, run_id: int, context: PricingContext, owner: str) -> None:
        self._run_id, self._context, self._owner = run_id, context, owner
        self._storefront, self._database = context.storefront, context.database

    async def run_next_action(self) -> bool:
        """Return whether more work may be left."""
        action = self._next_action()
        if action is None:
            return False
        claim = self._take()
        try:
            if not self._begin(claim, action):
                return True
            if action is _Action.PLAN:
                return await self._plan_and_queue(claim)
            work = Rollback if action is _Action.ROLL_BACK else TargetWork
            async with self._storefront.open() as shop:
                is_done = await work(claim, ApplyContext.of(self._context, shop)).process()
            if is_done and action is _Action.APPLY:
                observe_durations(self._storefront.meter, self.run())
            return is_done
        finally:
            with self._database.transaction() as session:
                release_claim(session, claim)

    def run(self) -> RuleRun:
        with self._database.reading() as session:
            return get_run(session, self._run_id)

    def _next_action(self) -> _Action | None:
        with self._database.transaction() as session:
            run = locked_run(session, self._run_id)
            action, name = _action_for(run), self._storefront.name
            if action is not None and run.shop != name:
                raise ConflictError(
                    f"Rule run {run.id} is about {run.shop}, and SHOP_API_BASE_URL is {name}: configure its "
                    "own shop, or cancel the run."
                )
            return action

    def _take(self) -> RunClaim:
        seconds = self._storefront.options.lease_seconds
        with self._database.transaction() as session:
            claim = claim_run(session, self._run_id, self._owner, seconds)
            left = 0.0 if claim else seconds_until_free(session, self._run_id)
        if claim is None:
            raise PricingRunBusyError(
                f"Rule run {self._run_id} is in progress.", retry_after_seconds=left + 1
            )
        return claim

    def _begin(self, claim: RunClaim, action: _Action) -> bool:
        """Return False if the run needs another action by now."""
        meter = self._storefront.meter
        with self._database.transaction() as session:
            run, now = claimed_run(session, claim), database_time(session)
            if _action_for(run) is not action:
                return False
            run.resume_at = None
            if action is _Action.ROLL_BACK:
                release_writing(session, run.id)
            if action is not _Action.APPLY:
                return True
            if run.status == PricingRunState.APPLYING:
                requeue_abandoned(session, run.id, now)
                return True
            if run.wish == RunAction.RETRY:
                meter.count(
                    "rules_target_retries_total", begin_retry(session, run, now), kind="manual"
                )
            else:
                begin_applying(session, run, now)
            meter.count("rules_apply_count_total", project=run.project_id, trigger=run.trigger)
            return True

    async def _plan_and_queue(self, claim: RunClaim) -> bool:
        with self._database.transaction() as session:
            run = claimed_run(session, claim)
            reason = blocking_reason(session, run.rule_id)
            actor = run.wished_by or run.created_by
        if reason is None:
            heartbeat = asyncio.create_task(self._send_heartbeats(claim))
            try:
                await plan_run(self._run_id, self._context)
            finally:
                heartbeat.cancel()
            try:
                queue_run(
                    self._run_id,
                    database=self._database,
                    clock=self._context.clock,
                    actor=actor,
                    requests_worker=False,
                )
            except RuleBusyError as busy:
                reason = sentence_of(busy)
            except (ConflictError, InvalidInputError) as refusal:
                self._record_refusal(claim, refusal)
                return False
            else:
                return True
        with self._database.transaction() as session:
            run = claimed_run(session, claim)
            # The run may have been cancelled in the meantime.
            if run.wish == RunAction.APPLY:
                run.resume_at, run.error_message = database_time(session) + BUSY_RULE_WAIT, reason
        return False

    async def _send_heartbeats(self, claim: RunClaim) -> None:
        """Extend the claim regularly, because reading a catalogue may take longer than a claim lasts."""
        seconds = self._storefront.options.lease_seconds

        def extend() -> None:
            with self._database.transaction() as session:
                extend_claim(session, claim, seconds)

        while True:
            await asyncio.sleep(seconds / 4)
            await asyncio.to_thread(extend)

    def _record_refusal(self, claim: RunClaim, refusal: Exception) -> None:
        """Store why the run stays a preview."""
        with self._database.transaction() as session:
            run, now = claimed_run(session, claim), self._context.clock.now()
            run.wish, run.error_message, run.updated_at = None, sentence_of(refusal), now
            is_scheduled = run.trigger == RuleTrigger.SCHEDULE
            if isinstance(refusal, PromotionOverError) and is_scheduled and run.scheduled_for:
                enqueue(
                    session, [schedule_missed(run.rule_id, run.project_id, run.scheduled_for, now)]
                )
