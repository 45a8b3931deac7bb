"""How long a snapshot is fresh, and when an enrichment is done again without being asked for."""

from datetime import datetime, timedelta

from automation_pipeline.enrichment.domain.evaluation import Evaluation
from automation_pipeline.enrichment.domain.states import EnrichmentStatus

RETRY_AFTER = (timedelta(hours=6), timedelta(hours=24), timedelta(hours=72))
_SPREAD = 0.1


def is_fresh(updated_at: datetime | None, now: datetime, freshness: timedelta) -> bool:
    """Exactly as old as that is stale."""
    return updated_at is not None and now - updated_at < freshness


def spread_freshness(siren: str, freshness: timedelta) -> timedelta:
    """When a snapshot is refreshed by itself: up to a tenth after its freshness ends, always the same for a SIREN, so
    that companies that were fetched in one night are not refreshed in one night. Never before: a snapshot is STALE only
    when its time is over."""
    share = (int(siren) % 1000) / 999
    return freshness * (1 + _SPREAD * share)


def due_at(siren: str, evaluation: Evaluation, retries: int, now: datetime, freshness: timedelta) -> datetime:
    """`retries`: how often it was tried again before, for reasons that pass by themselves."""
    if is_tried_again_soon(evaluation, retries):
        return now + RETRY_AFTER[retries]
    return now + spread_freshness(siren, freshness)


def is_tried_again_soon(evaluation: Evaluation, retries: int) -> bool:
    is_whole = evaluation.status is EnrichmentStatus.SUCCESS
    return not is_whole and evaluation.is_worth_retrying and retries < len(RETRY_AFTER)


def cooldown_until(
    status: EnrichmentStatus, last_manual_at: datetime | None, now: datetime, cooldown: timedelta
) -> datetime | None:
    """Until when nobody may have it refreshed by hand; None: anybody may. One that failed may be tried at any time."""
    if last_manual_at is None or status is EnrichmentStatus.FAILED or now >= last_manual_at + cooldown:
        return None
    return last_manual_at + cooldown
