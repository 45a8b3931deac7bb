"""`automation org-jobs backfills`: periods of schedules that are done again, how they stand, and how to stop one."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say_more
from automation_pipeline.cli.org_jobs.arguments import OfOrg
from automation_pipeline.cli.org_jobs.backfill_page import print_backfill, print_backfills
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.domain.backfill import Backfill

app = typer.Typer(help="See how periods that are done again stand; stop one.", no_args_is_help=True)

BackfillId = Annotated[
    int,
    typer.Argument(min=1, max=LARGEST_ID, help="The backfill's id, as `automation org-jobs backfills list` shows it."),
]


@app.command("list")
def list_(*, org: OfOrg = None, limit: Limit = 20, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List the backfills, newest first. For example: automation org-jobs backfills list --org acme"""
    found = desk().org_jobs.backfills.listed(org, one_more(limit, offset))
    if as_json:
        print_json({"backfills": [as_document(one) for one in found[:limit]], "more": len(found) > limit})
        return
    print_backfills(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(backfill_id: BackfillId, *, as_json: AsJson = False) -> None:
    """Show how the jobs of a backfill stand. For example: automation org-jobs backfills show 2"""
    _show(desk().org_jobs.backfills.get(backfill_id), as_json=as_json)


@app.command()
def cancel(backfill_id: BackfillId, *, as_json: AsJson = False) -> None:
    """Give up the jobs of a backfill that nobody has begun, and ask those at work to stop.

    For example: automation org-jobs backfills cancel 2
    """
    _show(desk().org_jobs.backfills.cancel(backfill_id), as_json=as_json)


def _show(backfill: Backfill, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(backfill))
    else:
        print_backfill(backfill)
