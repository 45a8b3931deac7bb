"""The hours within which a job may begin, as they are kept with it."""

from collections.abc import Mapping

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.execution_window import ExecutionWindow
from automation_pipeline.core.wall_clock import zone
from automation_pipeline.org_jobs.domain.retry_policy import StartWindow
from automation_pipeline.org_jobs.domain.timing import Timing


def kept(timing: Timing) -> dict[str, object] | None:
    if timing.window is None:
        return None
    start, end = (f"{at:%H:%M}" for at in (timing.window.start, timing.window.end))
    return {"start": start, "end": end, "timezone": timing.zone.key}


def window_of(document: Mapping[str, object] | None) -> StartWindow | None:
    """None: whenever; so too where its zone is gone from the zone database."""
    if document is None:
        return None
    try:
        window = ExecutionWindow.parse(str(document["start"]), str(document["end"]))
        return window and StartWindow(window, zone(str(document["timezone"])))
    except InvalidInputError:
        return None
