"""The due times of a schedule on a screen, and what became of each."""

from collections.abc import Iterable

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute
from automation_pipeline.cli.org_jobs.job_page import COLOURS as JOB_COLOURS
from automation_pipeline.cli.org_jobs.wall_times import wall
from automation_pipeline.cli.output import one_line
from automation_pipeline.org_jobs.domain.org_schedule import ScheduleFire
from automation_pipeline.org_jobs.domain.states import FireOutcome

COLOURS = {FireOutcome.DISPATCHED: "green", FireOutcome.SKIPPED: "yellow", FireOutcome.FAILED: "red"}


def print_fires(fires: Iterable[ScheduleFire], timezone: str) -> None:
    print_fitted_table(
        (f"due, {timezone}", "decided (UTC)", "by", "outcome", "job", "why"),
        (
            (wall(f.scheduled_for, timezone), minute(f.fired_at), f.trigger, Text(f.outcome, COLOURS[f.outcome]),
             _job(f), _why(f))
            for f in fires
        ),
        texts={"why"},
    )  # fmt: skip


def _job(fire: ScheduleFire) -> Text | None:
    """With what became of it."""
    if fire.job_id is None:
        return None
    status = fire.job_status
    return Text(
        f"{fire.job_id}" if status is None else f"{fire.job_id} {status}", JOB_COLOURS[status] if status else ""
    )


def _why(fire: ScheduleFire) -> str:
    told = [fire.skip_reason, fire.error, fire.note]
    return one_line(": ".join(words for words in told if words))
