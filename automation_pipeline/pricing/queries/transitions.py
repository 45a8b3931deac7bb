"""How a run is queued, begins, ends, is rolled back, is postponed and is found without a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Text, and_, case, cast, exists, func, insert, literal, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.events import apply_key, run_event_key
from automation_pipeline.pricing.models.history import FIRST_CHECKS
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    FIRST_TARGET_STATE,
    RULE_TARGET,
    PricingRunState,
    RunAction,
    TargetState,
    final_run_state,
    run_error,
    success_rate,
)
from automation_pipeline.pricing.models.shop import CRITICAL, CallFailure, FailureKind
from automation_pipeline.pricing.queries.rules import policy_of, rule_at
from automation_pipeline.pricing.queries.runs import (
    RUN_CLAIMS,
    give_up_queued,
    log_target_moves,
    move_run,
    no_such_run,
)
from automation_pipeline.pricing.queries.targets import (
    fail_uncertain_targets,
    queued_targets,
    states_of_targets,
)
from automation_pipeline.pricing.rules.runs import (
    END_AGAIN_AFTER,
    LASTING_FAILURES,
    ApplyTerms,
    WorkTarget,
    after_rollback,
)
from automation_pipeline.pricing.tables import RuleCheckRow, RuleRunRow, RuleTargetRow, ShopRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among, upsert
from automation_pipeline.storage.transitions import TransitionRow
from automation_pipeline.storage.types import UtcDateTime

ACTOR = "worker"


def begin_applying(session: Session, run: RuleRunRow, now: datetime) -> None:
    """A queued run's first step, or the first of its next cycle. The first beginning is kept."""
    run.started_at = run.started_at or _not_before(now, run.queued_at)
    run.finished_at = None
    run.error_type = run.error_message = None
    run.resume_at = None
    move_run(session, run, PricingRunState.APPLYING, ACTOR, now)
    enqueue(session, [run_event(run, "rule.run.started", now, {"cycle": run.retry_cycle})])


def begin_retry(session: Session, run: RuleRunRow, now: datetime) -> int:
    """The targets wished for are queued again, from the beginning: a new cycle, with keys of its
    own. How many."""
    chosen = session.scalars(
        update(RuleTargetRow)
        .where(
            RuleTargetRow.rule_run_id == run.id,
            RuleTargetRow.is_wished,
            RuleTargetRow.status == TargetState.FAILED,
        )
        .values(
            status=TargetState.QUEUED,
            is_wished=False,
            attempts=0,
            rate_limit_waits=0,
            rate_limit_seconds=0.0,
            began_at=None,
            next_attempt_at=None,
            error_type=None,
            error_message=None,
            error_retryable=None,
            acknowledged_at=None,
            acknowledged_by=None,
        )
        .returning(RuleTargetRow.id)
        .execution_options(synchronize_session=False)
    ).all()
    wished_by = run.wished_by or ACTOR
    log_target_moves(
        session,
        TargetState.FAILED,
        {id_: {"status": TargetState.QUEUED} for id_ in chosen},
        wished_by,
        now,
    )
    run.retry_cycle += 1
    run.wish = run.wished_by = None
    begin_applying(session, run, now)
    return len(chosen)


def record_attempts(
    session: Session, run: RuleRunRow, targets: Sequence[WorkTarget], now: datetime
) -> None:
    """Before the calls: each of them under a key of its own."""
    enqueue(session, [_attempt(run, target, now) for target in targets])


def apply_terms_of(session: Session, run_id: int) -> ApplyTerms:
    """What the run is worked under: the rule as it was when the run was made, the guardrails as
    they are now."""
    run = session.scalars(select(RuleRunRow).where(RuleRunRow.id == run_id)).one()
    rule = rule_at(session, run.rule_id, run.rule_version)
    return ApplyTerms(rule.on_drift, policy_of(session, run.project_id))


def run_event(run: RuleRunRow, name: str, now: datetime, payload: dict[str, object]) -> Event:
    told = {
        "runId": str(run.id),
        "ruleId": str(run.rule_id),
        "projectId": run.project_id,
        **payload,
    }
    key = run_event_key(str(run.id), name, run.retry_cycle)
    return Event(TENANT, key, name, "pricing", aggregate(run.id), now, told)


def aggregate(run_id: int) -> str:
    return f"rule-run-{run_id}"


def requester_of(session: Session, run_id: int) -> tuple[str, bool]:
    """Who asked for the run, and whether its rule's rest is cut short for it."""
    run = session.scalars(select(RuleRunRow).where(RuleRunRow.id == run_id)).one()
    return run.wished_by or run.created_by, bool((run.run_metadata or {}).get("force"))


def _attempt(run: RuleRunRow, target: WorkTarget, now: datetime) -> Event:
    progress = target.progress
    key = apply_key(str(run.id), str(target.id), run.retry_cycle, progress.attempts)
    payload = {
        "targetId": str(target.id),
        "runId": str(run.id),
        "attempt": progress.attempts,
        "cycle": run.retry_cycle,
    }
    return Event(TENANT, key, "automation.target.apply", "pricing", aggregate(run.id), now, payload)


def _not_before(now: datetime, queued_at: datetime | None) -> datetime:
    """The clock that queued it may be ahead of the database's."""
    return now if queued_at is None else max(now, queued_at)


def rule_of(session: Session, run_id: int) -> int:
    """The rule of the run, which never changes: it is held before the run is."""
    rule_id = session.scalar(select(RuleRunRow.rule_id).where(RuleRunRow.id == run_id))
    if rule_id is None:
        raise no_such_run(run_id)
    return rule_id


def check_waits(run: RuleRunRow) -> datetime:
    """When it was planned. ConflictError, unless it is a planned preview that nobody has
    cancelled."""
    if run.status != PricingRunState.PREVIEW:
        raise ConflictError(
            f"Rule run {run.id} is {run.status}: only a preview can be approved or queued."
        )
    if run.cancel_requested_at is not None:
        raise ConflictError(f"Rule run {run.id} was cancelled: preview the rule again.")
    if run.previewed_at is None:
        raise ConflictError(
            f"Rule run {run.id} is not planned yet: wait until its preview is there."
        )
    return run.previewed_at


def move_to_queue(session: Session, run: RuleRunRow, actor: str, now: datetime) -> None:
    """The run and all its targets. ConflictError: another run of the rule is on its way."""
    run.queued_at, run.queued_by, run.wish, run.wished_by, run.error_message = (
        now,
        actor,
        None,
        None,
        None,
    )
    move_run(session, run, PricingRunState.QUEUED, actor, now)
    _queue_targets(session, run.id, actor, now)
    enqueue(
        session,
        [
            run_event(
                run, "rule.apply.queued", now, {"targets": run.total_targets, "queuedBy": actor}
            )
        ],
    )


def _queue_targets(session: Session, run_id: int, actor: str, now: datetime) -> None:
    """However many they are, in two statements."""
    frm = FIRST_TARGET_STATE
    to = RULE_TARGET.move(frm, TargetState.QUEUED)
    its = RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == frm
    said = (
        literal(RULE_TARGET.name),
        cast(RuleTargetRow.id, Text),
        literal(frm.value),
        literal(to.value),
    )
    moved = (
        select(*said, literal(actor), literal(now, UtcDateTime()))
        .where(*its)
        .order_by(RuleTargetRow.id)
    )
    columns = ["machine", "entity_id", "from_state", "to_state", "actor", "at"]
    session.execute(insert(TransitionRow).from_select(columns, moved))
    session.execute(
        update(RuleTargetRow)
        .where(*its)
        .values(status=to)
        .execution_options(synchronize_session=False)
    )


def plan_checks(session: Session, run_id: int, finished_at: datetime) -> None:
    """The early ones. A run that ends again, after a retry, is looked at again."""
    rows = [
        {
            "rule_run_id": run_id,
            "name": name,
            "due_at": finished_at + after,
            "requested_at": None,
            "checked_at": None,
        }
        for name, after in FIRST_CHECKS
    ]
    fields = ("due_at", "requested_at", "checked_at")
    upsert(session, RuleCheckRow, rows, key=("rule_run_id", "name"), fields=fields)


MAX_SHOWN_ERRORS = 10


def end_run(session: Session, run: RuleRunRow, now: datetime, *, reconciles: bool) -> bool:
    """False: something of it is open still. A run is ended once; its checks are planned with its
    end."""
    counts = _counts(session, run.id)
    ended = final_run_state(counts)
    if ended is None:
        return False
    kinds = _failed_kinds(session, run.id)
    errors = _first_errors(session, run.id) if ended is not PricingRunState.APPLIED else []
    run.finished_at = max(now, run.started_at or now)
    run.resume_at = None
    error = run_error(ended, was_critical=bool(CRITICAL & kinds.keys()))
    run.error_type = error and error.value
    run.error_message = "; ".join(errors) or None
    told = _result_document(counts, kinds)
    run.explain_json = {**(run.explain_json or {}), "results": told, "cycles": run.retry_cycle + 1}
    move_run(session, run, ended, ACTOR, now, run.error_message)
    enqueue(session, [run_event(run, "rule.run.ended", now, {"status": ended.value, **told})])
    if reconciles and counts.get(TargetState.APPLIED):
        plan_checks(session, run.id, run.finished_at)
    return True


def give_up_rest(
    session: Session, run: RuleRunRow, failure: CallFailure, actor: str, now: datetime
) -> int:
    """Every target that waits fails without a call; but what may have been written is looked at
    once more."""
    fail_uncertain_targets(session, run.id, failure)
    left = queued_targets(session, run.id)
    values = {
        "is_writing": False,
        "error_message": failure.message,
        "error_type": failure.kind,
        "error_retryable": failure.kind is FailureKind.CANCELLED,
        "next_attempt_at": None,
        "last_attempt": now,
    }
    give_up_queued(session, left, values, actor, now)
    return len(left)


def _counts(session: Session, run_id: int) -> Mapping[TargetState, int]:
    query = select(RuleTargetRow.status, func.count()).where(RuleTargetRow.rule_run_id == run_id)
    return {
        TargetState(status): count
        for status, count in session.execute(query.group_by(RuleTargetRow.status)).tuples()
    }


def _failed_kinds(session: Session, run_id: int) -> Mapping[FailureKind, int]:
    query = (
        select(RuleTargetRow.error_type, func.count())
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == TargetState.FAILED)
        .group_by(RuleTargetRow.error_type)
    )
    return {
        FailureKind(kind): count
        for kind, count in session.execute(query).tuples()
        if kind is not None
    }


def _first_errors(session: Session, run_id: int) -> list[str]:
    query = (
        select(RuleTargetRow.error_message)
        .where(RuleTargetRow.rule_run_id == run_id, RuleTargetRow.status == TargetState.FAILED)
        .order_by(
            case((RuleTargetRow.error_type == FailureKind.CANCELLED, 1), else_=0), RuleTargetRow.id
        )
        .limit(MAX_SHOWN_ERRORS)
    )
    return [message.rstrip(".") for message in session.scalars(query) if message]


def _result_document(
    counts: Mapping[TargetState, int], kinds: Mapping[FailureKind, int]
) -> dict[str, object]:
    applied, failed = counts.get(TargetState.APPLIED, 0), counts.get(TargetState.FAILED, 0)
    rolled_back, cancelled = (
        counts.get(TargetState.ROLLED_BACK, 0),
        kinds.get(FailureKind.CANCELLED, 0),
    )
    rate = success_rate(applied + rolled_back, failed - cancelled)
    return {
        "successCount": applied,
        "errorCount": failed,
        "cancelledCount": cancelled,
        "totalTargets": sum(counts.values()),
        "successRate": None if rate is None else round(float(rate), 4),
    }


_ROLLED_BACK = "rule.run.rolled_back"


def end_rollback(session: Session, run: RuleRunRow, now: datetime) -> None:
    """Of a run that is held, when nothing is wished any more. A wish that came meanwhile stays,
    unless there is nothing left to do for it. The end of a promotion that failed for a reason that
    may pass is to be tried again."""
    counts = states_of_targets(session, run.id)
    before, actor = PricingRunState(run.status), run.wished_by or ACTOR
    after = after_rollback(before, counts)
    run.rollback_state, run.rollback_force, run.resume_at = after.rollback_state, False, None
    if (
        run.wish == RunAction.ROLLBACK
        and run.promotion_ended_at is not None
        and _may_pass(session, run.id)
    ):
        run.promotion_ended_at, run.resume_at = None, now + END_AGAIN_AFTER
    if run.wish == RunAction.ROLLBACK or after.status is PricingRunState.ROLLED_BACK:
        run.wish = run.wished_by = None
    run.updated_at = now
    if after.status is not before:
        move_run(session, run, after.status, actor, now)
    told: dict[str, object] = {
        "status": run.status,
        "rollbackState": run.rollback_state,
        "rolledBack": counts.get(TargetState.ROLLED_BACK, 0),
        "stillApplied": counts.get(TargetState.APPLIED, 0),
    }
    # A run may be rolled back in several parts, and each is under a hold of its own.
    key = run_event_key(str(run.id), _ROLLED_BACK, run.lease_token)
    enqueue(session, [replace(run_event(run, _ROLLED_BACK, now, told), key=key)])


def _may_pass(session: Session, run_id: int) -> bool:
    """What keeps some of its prices from being taken back."""
    query = select(RuleTargetRow.id).where(
        RuleTargetRow.rule_run_id == run_id,
        RuleTargetRow.status == TargetState.APPLIED,
        RuleTargetRow.error_type.not_in(sorted(LASTING_FAILURES)),
    )
    return session.scalar(query.limit(1)) is not None


def postpone_run(session: Session, run_id: int, seconds: float, reason: str) -> bool:
    """False where nothing is wanted of the run, somebody else works on it, or it waits for longer
    already."""
    row = RuleRunRow
    wants_work = or_(row.status.in_(ACTIVE_RUN_STATES), row.wish.is_not(None))
    waits_less = or_(row.resume_at.is_(None), row.resume_at < database_now(seconds))
    found = session.scalar(
        update(row)
        .where(row.id == run_id, wants_work, RUN_CLAIMS.is_free(), waits_less)
        .values(resume_at=database_now(seconds), error_message=reason)
        .returning(row.id)
        .execution_options(synchronize_session=False)
    )
    return found is not None


MAX_RUNS = 100
# A worker that was asked for takes its run within this time, if it ever does.
STARTS_WITHIN_SECONDS = 60.0

Run = RuleRunRow


def runs_without_worker(session: Session, *, shop: str | None = None) -> list[int]:
    """Those of shops that are not paused, and those to be cancelled wherever. Who waits for a
    worker that was asked for is left waiting."""
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
    query = select(Run.id).where(
        wants_work, RUN_CLAIMS.is_free(), is_due, may_go_on, ~is_asked_for, *only
    )
    return list(
        session.scalars(query.order_by(Run.id).limit(MAX_RUNS).with_for_update(skip_locked=True))
    )


def free_variants(session: Session) -> None:
    """Those that a lost worker was writing for a run that was then cancelled: nobody else comes to
    let go of them."""
    writes = Run.id.in_(select(RuleTargetRow.rule_run_id).where(RuleTargetRow.is_writing))
    is_over = and_(Run.status.not_in(ACTIVE_RUN_STATES), Run.wish.is_(None))
    query = (
        select(Run.id)
        .where(writes, is_over, RUN_CLAIMS.is_free())
        .with_for_update(skip_locked=True)
    )
    runs = session.scalars(query).all()
    if runs:
        session.execute(
            update(RuleTargetRow)
            .where(among(session, RuleTargetRow.rule_run_id, runs), RuleTargetRow.is_writing)
            .values(is_writing=False)
            .execution_options(synchronize_session=False)
        )
