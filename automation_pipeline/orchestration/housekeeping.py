"""The round that Dagster makes once a day: our rooms, and Dagster's own event log and records of runs."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from dagster import DagsterInstance, MetadataValue

from automation_pipeline.bootstrap import Services
from automation_pipeline.housekeeping.rounds import go_round
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.event_log import forget_events
from automation_pipeline.orchestration.run_records import forget_runs


async def keep_house(instance: DagsterInstance, our: Services, *, is_dry: bool = False) -> Mapping[str, int]:
    """How many rows of each kind went, or would."""
    settings, now = our.settings, our.clock.now()
    events, runs = settings.dagster_events_keep_days, settings.dagster_runs_keep_days
    ours = await go_round(our, is_dry=is_dry)
    return {
        **ours,
        "dagster events": await forget_events(instance, _before(now, events), is_dry=is_dry) if events else 0,
        "dagster runs": await forget_runs(instance, _before(now, runs), is_dry=is_dry) if runs else 0,
    }


def housekeeping_page(gone: Mapping[str, int]) -> dict[str, MetadataValue]:
    """As metadata: the sum, and what it is made of."""
    rows = "".join(f"| {name} | {count:,} |\n" for name, count in gone.items())
    table = metadata.markdown(f"| What | Rows |\n|---|---:|\n{rows}")
    return {"rows": metadata.integer(sum(gone.values())), "kinds": table}


def _before(now: datetime, keep_days: int) -> datetime:
    return now - timedelta(days=keep_days)
