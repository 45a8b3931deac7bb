"""`automation org-jobs types`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.output import (
    AsJson,
    print_fitted_table,
    print_json,
    read_json_object,
    say,
)
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.commands.arguments import (
    File,
    Org,
    Yes,
    ask,
    changed_fields,
    given_fields,
)
from automation_pipeline.org_jobs.models.job_types import JobTypeCard

app = typer.Typer(help="List the types of jobs, and define those that agents do.")

TypeName = Annotated[str, typer.Argument(help="The type's name, in capitals.")]
Summary = Annotated[str | None, typer.Option("--summary", help="What a job of the type does.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit-seconds", help="How long an attempt may take. Default: 900."),
]
Reads = Annotated[
    bool, typer.Option("--read-only", help="It changes nothing: a host does eight at a time.")
]
ReadsOrChanges = Annotated[
    bool | None,
    typer.Option("--read-only/--changes", help="Whether a host does up to eight at a time."),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="A JSON Schema of the payload. Default: any."),
]


@app.callback(invoke_without_command=True)
def default(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the types of jobs, and define those that agents do. Alone it lists the types."""
    if context.invoked_subcommand is None:
        _list(None, as_json=as_json)


@app.command("list")
def list_(*, org: Org = None, as_json: AsJson = False) -> None:
    """List the types of jobs; with --org also those that the organisation defines. --json shows
    what their payloads hold.

    For example: automation org-jobs types list --org acme
    """
    _list(org, as_json=as_json)


def _list(org: str | None, *, as_json: bool) -> None:
    found = open_client().org_jobs.types.listed(org)
    if as_json:
        print_json({"types": [as_document(one) for one in found]})
    else:
        print_types(found)


@app.command()
def create(
    name: TypeName,
    *,
    summary: Summary = None,
    limit_seconds: Limit = None,
    read_only: Reads = False,
    schema: SchemaFile = None,
    file: File = None,
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Define a type, or replace a built-in one in the organisation.

    For example: automation org-jobs types create REPORT_EXPORT --summary "Export the report"
    """
    fields = _fields(summary, limit_seconds, schema, read_only=read_only)
    made = open_client().org_jobs.types.create(given_fields(file, {"name": name, **fields}), org)
    _show(made, "defined", as_json=as_json)


@app.command()
def update(
    name: TypeName,
    *,
    summary: Summary = None,
    limit_seconds: Limit = None,
    read_only: ReadsOrChanges = None,
    schema: SchemaFile = None,
    file: File = None,
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Change a type that the organisation defines. What is left out stays.

    For example: automation org-jobs types update REPORT_EXPORT --summary "Export it" --read-only
    """
    fields = _fields(summary, limit_seconds, schema, read_only=read_only)
    changed = open_client().org_jobs.types.update(name, changed_fields(file, fields), org)
    _show(changed, "updated", as_json=as_json)


@app.command()
def delete(name: TypeName, *, org: Org = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a type that no schedule and no open job has.

    For example: automation org-jobs types delete REPORT_EXPORT --yes
    """
    if not yes:
        ask(f"Delete job type {name}?", f"delete job type {name}")
    open_client().org_jobs.types.delete(name, org)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        say(f"Job type {name} is deleted.")


def _fields(
    summary: str | None, limit_seconds: int | None, schema: Path | None, *, read_only: bool | None
) -> dict[str, object]:
    return {
        **({} if summary is None else {"summary": summary}),
        **({} if limit_seconds is None else {"limitSeconds": limit_seconds}),
        **({} if read_only is None else {"isMutation": not read_only}),
        **({} if schema is None else {"payloadSchema": read_json_object(schema)}),
    }


def _show(one: JobTypeCard, deed: str, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(one))
    else:
        say(f"Job type {one.name} of organisation {one.org_id} is {deed}.")


def print_types(types: Iterable[JobTypeCard]) -> None:
    columns = ("type", "by", "changes", "at most", "needs", "what it does")
    print_fitted_table(columns, map(_row, types), texts={"needs", "what it does"})


def _row(one: JobTypeCard) -> tuple[object, ...]:
    changes = "yes" if one.is_mutation else "no"
    needs = one.permission and f"{one.permission}.write"
    also = f" Also: {', '.join(one.aliases)}." if one.aliases else ""
    limit = one.limit_seconds
    length = f"{limit // 60} min" if limit < 2 * 3600 else f"{limit // 3600} h"
    return (one.name, one.performer, changes, length, needs, f"{one.summary}{also}")
