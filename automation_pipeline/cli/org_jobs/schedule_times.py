"""`automation org-jobs schedules next|preview`: when a schedule is due, stored or not, and what moves its times."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.org_jobs.arguments import After, File, ScheduleId, given_fields, read_instant
from automation_pipeline.cli.org_jobs.schedule_flags import ScheduleFlags, with_schedule_flags
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.cli.schedule_page import iso
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.preview import DEFAULT_COUNT, MOST_RUNS, ComingRun, SchedulePreview

Count = Annotated[int, typer.Option("--count", min=1, max=MOST_RUNS, help="How many.")]


def next_(
    schedule_id: ScheduleId, *, after: After = None, count: Count = DEFAULT_COUNT, as_json: AsJson = False
) -> None:
    """List when a schedule is due next, on its wall clock and in UTC, with what moves its times.

    For example: automation org-jobs schedules next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --after 2026-03-28T12:00:00Z
    """
    start = None if after is None else read_instant("--after", after)
    _show(desk().org_jobs.schedules.coming(str(schedule_id), count=count, after=start), as_json=as_json)


@with_schedule_flags
def preview(
    *,
    file: File = None,
    after: After = None,
    count: Count = DEFAULT_COUNT,
    flags: ScheduleFlags,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a schedule, or when it would be due. Nothing is stored.

    For example: automation org-jobs schedules preview --name Pings --type HTTPS_CALL
    --payload '{"url": "https://example.com/ping"}' --cron "30 2 * * *" --timezone Europe/Paris
    """
    start = None if after is None else read_instant("--after", after)
    fields = given_fields(file, flags.document())
    _show(desk().org_jobs.schedules.preview(fields, count=count, after=start), as_json=as_json)


LOOKS = {"next": next_, "preview": preview}


def _show(told: SchedulePreview, *, as_json: bool) -> None:
    if as_json:
        print_json({"occurrences": [iso(run.effective_for) for run in told.runs], **as_document(told)})
        return
    say(f"{told.in_words} ({told.timezone}).")
    if told.note:
        say(told.note)
    if told.runs:
        screen.print()
        print_fitted_table((told.timezone, "UTC", "note"), map(_run, told.runs), texts={"note"})


def _run(run: ComingRun) -> tuple[object, ...]:
    left_out = "It is left out: somebody wants that." if run.is_skipped else ""
    return (run.local_time, f"{run.effective_for:%Y-%m-%d %H:%M}", " ".join(filter(None, [left_out, run.note])))
