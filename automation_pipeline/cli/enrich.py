"""`automation enrich`: ask the registers for companies, and watch the answers come."""

import logging
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.enrich_following import Enriched, ask_for, follow, look
from automation_pipeline.cli.enrich_input import Wanted, read_wanted
from automation_pipeline.cli.enrich_output import check_writable, document_of, print_checked, print_companies, write_csv
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.cli.waiting import Here, Timeout, follows
from automation_pipeline.core.errors import InvalidInputError


def enrich(
    numbers: Annotated[
        list[str] | None, typer.Argument(help="SIRENs or SIRETs; spaces in them must be quoted.")
    ] = None,
    *,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv", help="A CSV with a column siren or siret, or with numbers in the first; - for standard input."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write a CSV with one row a company.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow to the end; exit 1 unless all are SUCCESS or PARTIAL.")
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    force: Annotated[bool, typer.Option("--force", help="Ask for what is fresh, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the numbers; nobody is asked.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse wrong check digits instead of warning.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for companies: what is known and fresh is shown at once, the rest is asked of the registers.

    Dagster's daemon does that within seconds; with --here, this command itself.
    """
    wait = follows("enrich", wait=wait, timeout=timeout, here=here)
    wanted = read_wanted(numbers or [], csv_file, strict=strict)
    if len(wanted) == 1 and wanted[0].fault is not None:
        raise InvalidInputError(wanted[0].fault)
    if out is not None:
        check_writable(out)
    if dry_run:
        told = [Enriched(wanted=one, fault=one.fault) for one in wanted]
    else:
        our = desk()
        told = _asked(wanted, our, force=force, quiet=as_json)
        followed = partial(follow, pause=threading.Event(), quiet=as_json, timeout=timeout, here=here)
        told = list(followed(told, our) if wait else look(told, our))
    _show(told, as_json=as_json, dry_run=dry_run)
    if out is not None:
        write_csv(out, told)
    if any(one.fault is not None or (wait and not dry_run and not one.is_good) for one in told):
        raise typer.Exit(1)


def _show(told: Sequence[Enriched], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json({"companies": [document_of(one) for one in told]})
    elif dry_run:
        print_checked(told)
    else:
        print_companies(told)


def _asked(wanted: Sequence[Wanted], our: Desk, *, force: bool, quiet: bool) -> Sequence[Enriched]:
    if sys.stderr.isatty():  # a person has the bar to look at
        logging.getLogger("automation_pipeline").setLevel(logging.WARNING)
    return ask_for(wanted, our, force=force, quiet=quiet)
