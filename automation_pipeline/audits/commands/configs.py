"""`automation audit-configs`: list, import, export, validate and order audit configurations."""

from pathlib import Path
from typing import Annotated, cast

import typer

from automation_pipeline.audits.models.configs import config_document, config_faults
from automation_pipeline.audits.queries.configs import ListedConfig, StoredConfig
from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    one_line,
    print_facts,
    print_json,
    print_table,
    read_json_object,
    screen,
    write_json,
)
from automation_pipeline.core.clock import iso
from automation_pipeline.core.json_model import LARGEST_ID

app = command_group("Configure what calls are judged by: the steps of an audit, in order.")

ConfigId = Annotated[
    int,
    typer.Argument(
        min=1,
        max=LARGEST_ID,
        help="The configuration's id, as `automation audit-configs list` shows it.",
    ),
]
ConfigFile = Annotated[
    Path, typer.Argument(help="JSON file of the configuration; - reads standard input.")
]
StepIds = Annotated[
    list[int],
    typer.Argument(
        min=1, max=LARGEST_ID, help="The ids of all its steps in the new order; `show` lists them."
    ),
]


@app.command("list")
def list_(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Show deactivated configurations too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the configurations, newest first. `audits` counts those that were ever made by each."""
    listed = open_client().audit_configs.listed(include_inactive=everything)
    if as_json:
        print_json({"audit_configs": [_row(one) for one in listed]})
        return
    print_table(
        ("id", "name", "active", "automatic", "steps", "weight", "audits"),
        (
            [_yes_or_no(cell) if isinstance(cell, bool) else cell for cell in _row(one).values()]
            for one in listed
        ),
    )


@app.command()
def show(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Show one configuration and its steps. A step that is critical and not met rejects the whole
    audit."""
    _show(open_client().audit_configs.get(config_id), as_json=as_json)


@app.command("import")
def import_(
    file: ConfigFile,
    *,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Replace the configuration of the same name if it says something else."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store a configuration, known by its name. Importing the same file again changes nothing.

    `automation audit-configs validate` tells what is wrong with a file and stores nothing.
    """
    imported = open_client().audit_configs.import_(read_json_object(file), update=update)
    steps = len(imported.config.steps)
    if as_json:
        told = {
            "id": str(imported.id),
            "name": imported.config.name,
            "outcome": imported.outcome,
            "steps": steps,
        }
        print_json(told)
    else:
        _print(
            f"Audit config {imported.id} is {imported.outcome}: {imported.config.name}, {steps} step(s)."
        )


@app.command()
def export(
    config_id: ConfigId,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to this file instead; - is standard output."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a configuration as JSON for `import`. Keep it, change it, or carry it to another
    database."""
    document = config_document(open_client().audit_configs.get(config_id).config)
    if output is None or str(output) == "-":
        print_json(document)
        return
    write_json(output, document)
    if as_json:
        print_json({"id": str(config_id), "file": str(output)})
    else:
        _print(f"Audit config {config_id} is written to {output}.")


@app.command()
def validate(file: ConfigFile, *, as_json: AsJson = False) -> None:
    """Tell every fault of a configuration's file. One a line; exit 1 if there is any. Nothing is
    stored."""
    faults = config_faults(read_json_object(file))
    if as_json:
        print_json(
            {
                "valid": not faults,
                "errors": [{"field": field, "message": why} for field, why in faults],
            }
        )
    else:
        for field, why in faults:
            _print(one_line(f"{field}: {why}" if field else why))
        if not faults:
            _print("valid")
    if faults:
        raise typer.Exit(1)


@app.command()
def activate(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Take a configuration into use again."""
    _set_active(config_id, active=True, as_json=as_json)


@app.command()
def deactivate(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Take a configuration out of use. The audits that were made by it stay."""
    _set_active(config_id, active=False, as_json=as_json)


@app.command()
def delete(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Delete a configuration that was never used. Deactivate any other: its audits need it."""
    open_client().audit_configs.delete(config_id)
    if as_json:
        print_json({"id": str(config_id), "deleted": True})
    else:
        _print(f"Audit config {config_id} is deleted.")


@app.command()
def reorder(config_id: ConfigId, step_ids: StepIds, *, as_json: AsJson = False) -> None:
    """Put the steps into another order. Name every step once, by the id that `show` tells."""
    _show(open_client().audit_configs.reorder(config_id, step_ids), as_json=as_json)


def _set_active(config_id: int, *, active: bool, as_json: bool) -> None:
    stored = open_client().audit_configs.set_active(config_id, active=active)
    if as_json:
        print_json({"id": str(config_id), "name": stored.config.name, "isActive": active})
    else:
        _print(
            f"Audit config {config_id} is {'active' if active else 'deactivated'}: {stored.config.name}."
        )


def _print(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)


def _yes_or_no(answer: bool) -> str:
    return "yes" if answer else "no"


def _row(one: ListedConfig) -> dict[str, object]:
    config = one.stored.config
    return {
        "id": str(one.stored.id),
        "name": config.name,
        "isActive": config.is_active,
        "runAutomatically": config.run_automatically,
        "steps": len(config.steps),
        "totalWeight": config.total_weight,
        "audits": one.audits,
    }


def _show(stored: StoredConfig, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(stored))
        return
    config = stored.config
    steps = zip(config.steps, stored.step_ids, strict=True)
    use = f"{'active' if config.is_active else 'deactivated'}{', runs automatically' * config.run_automatically}"
    print_facts(
        {
            "audit config": f"{stored.id}  {config.name}",
            "description": config.description,
            "use": use,
            "total weight": config.total_weight,
        }
    )
    print_table(
        ("position", "name", "severity", "weight", "critical", "points", "step id"),
        (
            (
                s.position,
                s.name,
                s.severity,
                s.weight,
                _yes_or_no(s.is_critical),
                len(s.control_points),
                step_id,
            )
            for s, step_id in steps
        ),
    )


def _document(stored: StoredConfig) -> dict[str, object]:
    """What `export` prints, and what only a stored configuration has; `import` takes it all the
    same."""
    document = config_document(stored.config)
    steps = cast("list[dict[str, object]]", document["steps"])
    with_ids = [
        {"id": str(step_id), **step} for step_id, step in zip(stored.step_ids, steps, strict=True)
    ]
    times = {"createdAt": iso(stored.created_at), "updatedAt": iso(stored.updated_at)}
    return {"id": str(stored.id), **document, "steps": with_ids, **times}
