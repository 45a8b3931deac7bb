"""What a worker found out about targets, written down: states, prices that were written, and what is next."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.dead_letters import worth_retrying
from automation_pipeline.pricing.domain.keys import apply_key
from automation_pipeline.pricing.domain.money import price_document
from automation_pipeline.pricing.domain.retrying import Progress
from automation_pipeline.pricing.domain.states import TargetState
from automation_pipeline.pricing.domain.work import Applied, GivenUp, PutBack, Settled
from automation_pipeline.pricing.store.moves import move_targets
from automation_pipeline.pricing.tables import PriceChangeRow, RuleRunRow
from automation_pipeline.storage.bulk import upsert

_ACTOR = "worker"


def settle(session: Session, run: RuleRunRow, settled: Sequence[Settled], now: datetime) -> None:
    """Of a run that is held: all of it in a constant number of statements."""
    applied = [one for one in settled if isinstance(one, Applied)]
    back = [one for one in settled if isinstance(one, PutBack)]
    failed = [one for one in settled if isinstance(one, GivenUp)]
    for changes in (
        {one.target.id: _of_applied(one, now) for one in applied},
        {one.target.id: _of_back(one, now) for one in back},
        {one.target.id: _of_failed(one) for one in failed},
    ):
        move_targets(session, TargetState.APPLYING, changes, _ACTOR, now)
    keep_price_changes(session, run, {_key(one, run): one for one in applied}, "apply", now)


def keep_price_changes(
    session: Session, run: RuleRunRow, written: Mapping[str, Applied], kind: str, now: datetime
) -> None:
    """By their keys: one that is kept already is not kept twice."""
    rows = [{"event_key": key, "kind": kind, **_change(one, run, now)} for key, one in written.items()]
    upsert(session, PriceChangeRow, rows, key=("event_key",))


def _of_applied(one: Applied, now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.APPLIED,
        "is_writing": False,
        "outcome_unknown": False,
        "applied_at": now,
        "error_message": None,
        "error_type": None,
        "error_retryable": None,
        "external_request_id": one.request_id,
        "duration_ms": one.duration_ms,
        "observed_price": price_document(one.target.after if one.was_found else one.seen),
    }


def _of_back(one: PutBack, now: datetime) -> dict[str, object]:
    return {
        "status": TargetState.QUEUED,
        "is_writing": False,
        "outcome_unknown": one.outcome_unknown,
        "next_attempt_at": now + timedelta(seconds=one.wait_seconds) if one.wait_seconds else None,
        # While a shop rests or is paused, nobody is late.
        "began_at": one.target.began_at if one.failure else None,
        **doom_columns(one),
        **progress_columns(one.progress),
    }


def doom_columns(one: PutBack) -> dict[str, object]:
    """A kind of error on a target that waits is what it is given up for, but for a last look."""
    told = one.doom or one.failure
    return {
        "error_message": told.message if told else None,
        "error_type": one.doom.kind if one.doom else None,
        "error_retryable": one.doom.retryable if one.doom else None,
    }


def _of_failed(one: GivenUp) -> dict[str, object]:
    failure = one.failure
    return {
        "status": TargetState.FAILED,
        "is_writing": False,
        "outcome_unknown": failure.outcome_unknown or one.target.outcome_unknown,
        "error_message": failure.message,
        "error_type": failure.kind,
        "error_retryable": worth_retrying(failure.kind, retryable=failure.retryable),
        "observed_price": price_document(one.seen) if one.seen else None,
        **progress_columns(one.progress),
    }


def progress_columns(progress: Progress) -> dict[str, object]:
    return {
        "attempts": progress.attempts,
        "rate_limit_waits": progress.rate_limit_waits,
        "rate_limit_seconds": progress.rate_limit_seconds,
    }


def _key(one: Applied, run: RuleRunRow) -> str:
    return apply_key(str(run.id), str(one.target.id), run.retry_cycle, one.target.progress.attempts)


def _change(one: Applied, run: RuleRunRow, now: datetime) -> dict[str, object]:
    target = one.target
    return {
        "tenant_id": run.tenant_id,
        "project_id": run.project_id,
        "shop": run.shop,
        "source": f"rule:{run.rule_id}",
        "rule_run_id": run.id,
        "target_id": target.id,
        "product_id": target.product_id,
        "variant_id": target.variant_id,
        "sku_id": target.sku,
        "currency": target.after.currency,
        "from_amount": one.seen.unit_amount,
        "to_amount": target.after.unit_amount,
        "compare_at_old": one.seen.compare_at,
        "compare_at_new": target.after.compare_at if target.writes_compare_at else one.seen.compare_at,
        "was_found": one.was_found,
        "applied_at": now,
    }
