"""`automation schedules preview|backfill`: what a run would do, and runs for days that lie behind."""

from datetime import datetime
from typing import Annotated

import typer

from automation_pipeline.automation.stages.backfill_schedule import ScheduleBackfill
from automation_pipeline.automation.stages.preview_schedule import SelectionPreview
from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.output import AsJson, print_facts, print_json, print_table
from automation_pipeline.cli.schedule_page import ScheduleId
from automation_pipeline.core.json_model import as_document

MOST_NAMED = 20


def preview(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show what a run would select and drop now, and why. Nothing is written."""
    shown = desk().schedules.preview(schedule_id)
    if as_json:
        print_json(as_document(shown))
    else:
        _print_preview(shown)


def backfill(
    schedule_id: ScheduleId,
    *,
    first: Annotated[datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="The first day of sales.")],
    last: Annotated[datetime, typer.Option("--to", formats=["%Y-%m-%d"], help="The last day of sales.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the days, and file nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """File one run per day of a range, each day once. Repeating the command files what is missing."""
    made = desk().schedules.backfill(schedule_id, first.date(), last.date(), dry_run=dry_run)
    if as_json:
        print_json(as_document(made))
    else:
        _print_backfill(made)


def _print_preview(shown: SelectionPreview) -> None:
    named = ", ".join(shown.fiches[:MOST_NAMED]) + (" ..." if len(shown.fiches) > MOST_NAMED else "")
    print_facts(
        {
            "schedule": str(shown.schedule_id),
            "days": ", ".join(shown.days) or None,
            "days not read": "; ".join(f"{one.date}: {one.error}" for one in shown.unread_days) or None,
            "candidates": str(shown.candidates),
            "selected": f"{shown.selected}: {named}" if shown.selected else f"0 ({shown.empty_reason})",
            "dropped": ", ".join(f"{why} {count}" for why, count in shown.counts.items() if count) or "none",
            "audit configurations": ", ".join(map(str, shown.audit_configs)) or "none",
        }
    )
    left_out = [("dropped", one) for one in shown.dropped] + [("ignored", one) for one in shown.ignored]
    if left_out:
        print_table(
            ("fiche", "would be", "reason", "why"),
            ((one.fiche_id, how, one.reason, one.why) for how, one in left_out),
        )


def _print_backfill(made: ScheduleBackfill) -> None:
    filed = "would be filed" if made.dry_run else "filed"
    print_table(
        ("day", "run", "status", ""),
        ((day.day.isoformat(), day.run_id, day.status, filed if day.filed else "has its run") for day in made.days),
    )
