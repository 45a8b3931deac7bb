"""`automation schedules next|skip-next|occurrences`: when a schedule is due, and what became of it."""

from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from automation_pipeline.automation.domain.occurrences import beginning, occurrences_after
from automation_pipeline.automation.domain.schedule import ScheduleType
from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.cli.schedule_page import (
    ScheduleId,
    iso,
    occurrence_document,
    print_coming,
    print_occurrences,
    wall,
)
from automation_pipeline.core.errors import InvalidInputError


def skip_next_(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Leave out the next occurrence; said again, the one after it too."""
    our = desk()
    due_at = our.schedules.skip_next(schedule_id)
    schedule = our.schedules.get(schedule_id)
    if as_json:
        print_json({"id": str(schedule_id), "skipped": iso(due_at)})
    else:
        _say(f"Schedule {schedule_id} is not run on {wall(due_at, schedule)}.")


def next_(
    schedule_id: ScheduleId,
    *,
    after: Annotated[str | None, typer.Option(help="Start from this ISO instant instead of now.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """List the coming occurrences, in the schedule's time zone and in UTC."""
    our = desk()
    start = our.clock.now() if after is None else _instant(after)
    schedule = our.schedules.get(schedule_id)
    coming = list(islice(occurrences_after(schedule, start), count))
    if as_json:
        print_json({"occurrences": [iso(at) for at in coming]})
    elif schedule.schedule_type is ScheduleType.MANUAL:
        _say("A MANUAL schedule runs only when it is asked to: `automation schedules run-now`.")
    else:
        print_coming(schedule, coming)


def occurrences(
    schedule_id: ScheduleId,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the last due times: the run of each, or why there was none."""
    our = desk()
    schedule = our.schedules.get(schedule_id)
    decided = our.schedules.occurrences(schedule_id, limit)
    if as_json:
        print_json({"occurrences": [occurrence_document(one) for one in decided]})
    else:
        print_occurrences(schedule, decided)


def _say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"--after is not an ISO instant such as 2026-03-29T01:00:00Z: {text}") from None
    try:
        return beginning(instant)
    except ValueError as error:
        raise InvalidInputError(f"--after {error}: {text}") from None
