"""Keys that make one thing one thing."""

from datetime import datetime, timedelta

from automation_pipeline.enrichment.domain.vocabulary import Trigger


def lock_key(siren: str) -> str:
    return f"company_enrichment:{siren}"


def trigger_key(siren: str, trigger: Trigger, now: datetime, cooldown: timedelta) -> str:
    """Of what is asked for by itself or by hand: once a day, and by hand once a cooldown."""
    if trigger is Trigger.MANUAL_REFRESH:
        return f"{siren}:{trigger}:{int(now.timestamp() // cooldown.total_seconds())}"
    return f"{siren}:{trigger}:{now:%Y-%m-%d}"
