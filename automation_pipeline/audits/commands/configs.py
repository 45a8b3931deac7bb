"""`automation audit-configs`: list, import, export, validate and order audit configurations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.audits.configs import (
    config_page,
    config_view,
    delete_config,
    import_config,
    reorder_steps,
    set_config_active,
)
from automation_pipeline.audits.models.configs import ConfigShown, ConfigStepShown, config_faults
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, every, operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    one_line,
    print_facts,
    print_json,
    print_result,
    read_json_object,
    say,
    write_json,
)
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.storage.database import Session

app = command_group("Manage audit configurations: the steps for judging calls.")

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


PATH = "/api/audit-configs"
# Fields of a stored configuration that `import` does not read.
STORED_FIELDS = {"id", "created_at", "updated_at", "steps_count", "total_weight", "stats"}


@operation(f"GET {PATH}")
def configs(
    session: Session,
    *,
    include_inactive: bool,
    include_steps: bool = True,
    include_stats: bool = True,
    limit: int,
    offset: int,
) -> Sequence[ConfigShown]:
    return config_page(
        session,
        include_inactive=include_inactive,
        include_steps=include_steps,
        include_stats=include_stats,
        limit=limit,
        offset=offset,
    )


@operation(f"GET {PATH}/{{config_id}}")
def get_config(session: Session, config_id: int) -> ConfigShown:
    return config_view(session, config_id)


@operation(f"POST {PATH}/import", query=["update"])
def store_config(services: Services, given: Document, *, update: bool) -> Document:
    stored = import_config(given, update=update, database=services.database, clock=services.clock)
    return {
        "id": str(stored.id),
        "name": stored.config.name,
        "outcome": stored.outcome,
        "stepsCount": len(stored.config.steps),
    }


@operation(f"PUT {PATH}/{{config_id}}")
def set_active(services: Services, config_id: int, *, is_active: bool) -> Document:
    stored = set_config_active(
        config_id, active=is_active, database=services.database, clock=services.clock
    )
    return {"name": stored.config.name}


@operation(f"DELETE {PATH}/{{config_id}}")
def remove_config(services: Services, config_id: int) -> None:
    delete_config(config_id, database=services.database)


@operation(f"PUT {PATH}/{{config_id}}/steps/reorder")
def order_steps(services: Services, config_id: int, step_ids: Sequence[int]) -> None:
    reorder_steps(config_id, step_ids, database=services.database, clock=services.clock)


@app.command("list")
def list_(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Show deactivated configurations too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the configurations, newest first. `audits` counts all audits by each configuration."""
    found = list(every(configs, by="offset", include_inactive=everything))
    if as_json:
        print_json({"audit_configs": [_row(one) for one in found]})
    else:
        CONFIGS.print(found)


@app.command()
def show(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Show one configuration and its steps. An audit is rejected unless every critical step is CONFORME."""
    _show(get_config(config_id), as_json=as_json)


@app.command("import")
def import_(
    file: ConfigFile,
    *,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Replace the configuration of the same name if its content differs."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store a configuration under its name. Importing the same file again changes nothing.

    `automation audit-configs validate` checks a file and stores nothing."""
    stored = store_config(read_json_object(file), update=update)
    steps = stored["stepsCount"]
    print_result(
        {**{name: stored[name] for name in ("id", "name", "outcome")}, "steps": steps},
        f"Audit config {stored['id']} is {stored['outcome']}: {stored['name']}, {steps} step(s).",
        as_json=as_json,
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
    """Print a configuration as JSON for `import`. Use the file as a backup, edit it, or import it
    into another database."""
    config = get_config(config_id)
    document = {
        **config.model_dump(mode="json", by_alias=True, exclude=STORED_FIELDS),
        "steps": [
            step.model_dump(mode="json", by_alias=True, exclude={"id"})
            for step in config.steps or ()
        ],
    }
    if output is None or str(output) == "-":
        print_json(document)
        return
    write_json(output, document)
    document = {"id": str(config_id), "file": str(output)}
    print_result(document, f"Audit config {config_id} is written to {output}.", as_json=as_json)


@app.command()
def validate(file: ConfigFile, *, as_json: AsJson = False) -> None:
    """List every error in a configuration's file, one per line. Exit 1 if there is any. Nothing is
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
            say(one_line(f"{field}: {why}" if field else why))
        if not faults:
            say("valid")
    if faults:
        raise typer.Exit(1)


@app.command()
def activate(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Activate a configuration again."""
    _set_active(config_id, active=True, as_json=as_json)


@app.command()
def deactivate(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Deactivate a configuration. Its audits stay."""
    _set_active(config_id, active=False, as_json=as_json)


@app.command()
def delete(config_id: ConfigId, *, as_json: AsJson = False) -> None:
    """Delete a configuration without audits. Deactivate a configuration with audits instead."""
    remove_config(config_id)
    print_result(
        {"id": str(config_id), "deleted": True},
        f"Audit config {config_id} is deleted.",
        as_json=as_json,
    )


@app.command()
def reorder(config_id: ConfigId, step_ids: StepIds, *, as_json: AsJson = False) -> None:
    """Reorder the steps. Name every step once, by its id in `show`."""
    order_steps(config_id, step_ids)
    _show(get_config(config_id), as_json=as_json)


def _set_active(config_id: int, *, active: bool, as_json: bool) -> None:
    name = set_active(config_id, is_active=active)["name"]
    document = {"id": str(config_id), "name": name, "isActive": active}
    state = "active" if active else "deactivated"
    print_result(document, f"Audit config {config_id} is {state}: {name}.", as_json=as_json)


def _yes_or_no(answer: bool) -> str:
    return "yes" if answer else "no"


def _row(one: ConfigShown) -> dict[str, object]:
    return {
        "id": str(one.id),
        "name": one.name,
        "isActive": one.is_active,
        "runAutomatically": one.run_automatically,
        "steps": one.steps_count,
        "totalWeight": one.total_weight,
        "audits": one.stats.all_audits if one.stats else 0,
    }


def _show(config: ConfigShown, *, as_json: bool) -> None:
    if as_json:
        print_json(config.document())
        return
    state = "active" if config.is_active else "deactivated"
    print_facts(
        {
            "audit config": f"{config.id}  {config.name}",
            "description": config.description,
            "use": f"{state}{', runs automatically' * config.run_automatically}",
            "total weight": config.total_weight,
        }
    )
    STEPS.print(config.steps or ())


CONFIGS = Columns[ConfigShown](
    {
        "id": lambda one: one.id,
        "name": lambda one: one.name,
        "active": lambda one: _yes_or_no(one.is_active),
        "automatic": lambda one: _yes_or_no(one.run_automatically),
        "steps": lambda one: one.steps_count,
        "weight": lambda one: one.total_weight,
        "audits": lambda one: one.stats and one.stats.all_audits,
    }
)
STEPS = Columns[ConfigStepShown](
    {
        "position": lambda one: one.position,
        "name": lambda one: one.name,
        "severity": lambda one: one.severity_level,
        "weight": lambda one: one.weight,
        "critical": lambda one: _yes_or_no(one.is_critical),
        "points": lambda one: len(one.control_points),
        "step id": lambda one: one.id,
    }
)
