"""`automation runs report`: a run as one HTML page, to read or to send."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.cli.run_page import run_page
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.settings import load_settings
from automation_pipeline.core.whole_file import write_whole


def report(
    run_id: Annotated[
        int, typer.Argument(min=1, max=LARGEST_ID, help="The run's id, as `automation runs list` shows it.")
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where the page goes; `-`: standard output.", show_default="reports folder"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one page about a run: its counters, why fiches failed, what audits found and the quotations for it."""
    page = run_page(desk().runs.report(run_id))
    if str(output) == "-":
        sys.stdout.write(page)
        return
    path = output or Path(load_settings().automation_reports_dir) / f"run-{run_id}.html"
    try:
        write_whole(path, page.encode())
    except PermanentError as error:
        raise InvalidInputError(str(error)) from None
    if as_json:
        print_json({"runId": str(run_id), "file": str(path)})
    else:
        screen.print(f"The report of run {run_id} is {path}.", highlight=False, markup=False)
