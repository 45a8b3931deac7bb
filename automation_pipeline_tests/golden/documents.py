"""Describes, as text, what users and other systems depend on. `make golden` writes each description
to its file."""

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import dagster as dg
import sqlalchemy as sa
import typer
from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.schema import DefaultClause, ScalarElementColumnDefault

from automation_pipeline.api.app import create_app
from automation_pipeline.api.permissions import RULES
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.main import app as command_line
from automation_pipeline.core.settings import Settings
from automation_pipeline.definitions import defs
from automation_pipeline.migrations.tables import METADATA

FOLDER = Path(__file__).parent
WIDTH = 160


def openapi() -> str:
    """The OpenAPI document without its version; answers that many operations share are named once,
    at the top."""
    document = json.loads(json.dumps(create_app(Services(Settings())).openapi()))
    del document["info"]["version"]
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    counted = Counter(
        (code, _json(answer)) for one in operations for code, answer in one["responses"].items()
    )
    shared = {code: text for (code, text), count in counted.items() if count > 20}
    for one in operations:
        for code, answer in one["responses"].items():
            if shared.get(code) == _json(answer):
                one["responses"][code] = "shared"
    answers = {code: json.loads(text) for code, text in shared.items()}
    return _laid_out({"shared answers": answers, **document}) + "\n"


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _laid_out(value: Any, indent: str = "") -> str:
    """Sorted JSON. What fits on a line is on one."""
    line = _json(value)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        inner = [f"{deeper}{_json(key)}: {_laid_out(value[key], deeper)}" for key in sorted(value)]
        return "{\n" + ",\n".join(inner) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _laid_out(one, deeper) for one in value) + f"\n{indent}]"


def commands() -> str:
    """Every command with its parameters."""
    return _paragraphs(_commands(typer.main.get_command(command_line), "automation"))


def _commands(command: Any, name: str) -> Iterator[str]:
    lines = [f"  {_parameter(one)}" for one in command.params]
    yield "\n".join([f"{name}: {_first_line(command.help)}", *lines])
    for below, one in getattr(command, "commands", {}).items():
        yield from _commands(one, f"{name} {below}")


def _parameter(one: Any) -> str:
    facts = [_kind(one.type_descriptor.annotation)]
    facts += [
        f"{word} {limit}"
        for word in ("min", "max")
        if (limit := getattr(one, word, None)) is not None
    ]
    facts += (
        ["required"]
        if one.required
        else [f"default {getattr(one.default, 'value', one.default)!r}"]
        if one.default not in (None, ())
        else []
    )
    facts += ["repeatable"] if getattr(one, "multiple", False) or one.nargs != 1 else []
    names = (
        [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else [one.name.upper()]
    )
    return f"{' / '.join(names)} ({', '.join(facts)}): {_first_line(one.help)}"


def _kind(annotation: Any) -> str:
    """A type without its validators: their names and memory addresses are no part of the interface."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"one of {', '.join(str(one.value) for one in annotation)}"
    match get_origin(annotation), get_args(annotation):
        case None, _:
            return getattr(annotation, "__name__", str(annotation)).replace("NoneType", "none")
        case origin, arguments if origin is Annotated:
            return _kind(arguments[0])
        case origin, arguments if origin is Literal:
            return f"one of {', '.join(map(str, arguments))}"
        case origin, arguments if origin in {Union, UnionType}:
            return " or ".join(map(_kind, arguments))
        case origin, arguments:
            return (
                f"{_kind(origin)} of {', '.join(_kind(one) for one in arguments if one is not ...)}"
            )


def _first_line(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def tables() -> str:
    """Tables with columns, constraints and indexes. A type is named as both databases name it, and
    `= value` is what a new row gets without a value."""
    return _paragraphs(_table(METADATA.tables[name]) for name in sorted(METADATA.tables))


def _table(table: sa.Table) -> str:
    constraints = sorted(_constraint(one) for one in table.constraints)
    indexes = sorted(_index(one) for one in table.indexes)
    autoincrement = " autoincrement" if table.dialect_options["sqlite"]["autoincrement"] else ""
    return "\n".join(
        [
            table.name + autoincrement,
            *(f"  {_column(one)}" for one in table.columns),
            *constraints,
            *indexes,
        ]
    )


def _column(column: sa.Column[Any]) -> str:
    kinds = {column.type.compile(dialect()) for dialect in (sqlite.dialect, postgresql.dialect)}
    default = column.server_default
    given = f" default {default.arg}" if isinstance(default, DefaultClause) else ""
    if isinstance(column.default, ScalarElementColumnDefault):
        given += f" = {column.default.arg!r}"
    return f"{column.name} {' | '.join(sorted(kinds))}{' null' if column.nullable else ''}{given}"


def _constraint(one: sa.Constraint) -> str:
    names = ", ".join(column.name for column in getattr(one, "columns", ()))
    match one:
        case sa.CheckConstraint():
            return f"  check {one.name}: {one.sqltext}"
        case sa.ForeignKeyConstraint():
            targets = ", ".join(element.target_fullname for element in one.elements)
            return f"  foreign key ({names}) -> {targets}{f' on delete {one.ondelete}' if one.ondelete else ''}"
        case sa.UniqueConstraint():
            return f"  unique {one.name} ({names})"
        case _:
            return f"  primary key ({names})"


def _index(one: sa.Index) -> str:
    where = one.dialect_options["sqlite"]["where"]
    names = ", ".join(str(expression) for expression in one.expressions)
    more = (" unique" if one.unique else "") + (f" where {where}" if where is not None else "")
    return f"  index {one.name} ({names}){more}"


def settings() -> str:
    """Environment variables with their types and defaults."""
    return (
        "\n".join(sorted(_setting(name, field) for name, field in Settings.model_fields.items()))
        + "\n"
    )


def _setting(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    variable = alias.choices[0] if isinstance(alias, AliasChoices) else name.upper()
    kind = _kind(field.annotation)
    default = "" if field.default is PydanticUndefined else f" = {field.default!r}"
    bounds = [
        str(one)
        for one in field.metadata
        if any(hasattr(one, word) for word in ("gt", "ge", "lt", "le"))
    ]
    return f"{variable}: {' '.join([kind, *bounds])}{default}"


def permissions() -> str:
    """Each route with what its caller needs."""
    return (
        "\n".join(
            sorted(
                f"{path} {method}: {_permission(rule)}" for (method, path), rule in RULES.items()
            )
        )
        + "\n"
    )


def _permission(rule: Any) -> str:
    if rule.public:
        return "public"
    own = f", of one's own organisation {rule.own}.{rule.action}" if rule.own else ""
    needed = f"{rule.permission}.{rule.action}" if rule.permission else "any credentials"
    entity = f" {rule.entity}" if rule.entity else ""
    return f"{needed}{own}; scope by {rule.scoped}{entity}"


def dagster() -> str:
    """Jobs, sensors, schedules, assets and checks."""
    loaded = defs()
    jobs = sorted(loaded.resolve_all_job_defs(), key=lambda job: job.name)
    sensors = sorted(loaded.sensors or (), key=lambda one: one.name)
    schedules = sorted((one for one in loaded.schedules or ()), key=lambda one: one.name)
    graph = loaded.resolve_asset_graph()
    assets = sorted(loaded.resolve_all_asset_specs(), key=lambda spec: spec.key)
    checks = sorted(graph.asset_check_keys)
    return _paragraphs(
        [
            *(_job(job) for job in jobs if not job.name.startswith("__")),
            *map(_sensor, sensors),
            *(_schedule(loaded.resolve_schedule_def(one.name)) for one in schedules),
            *map(_asset, assets),
            *(
                f"check {key.name} of {key.asset_key.to_user_string()}: {_described(graph.get_check_spec(key))}"
                for key in checks
            ),
        ]
    )


def _described(one: Any) -> str:
    return "described" if one.description else "no description"


def _pairs(mapping: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={mapping[key]}" for key in sorted(mapping)) or "none"


def _job(job: dg.JobDefinition) -> str:
    ops = [
        f"  op {node.name}({', '.join(node.definition.input_dict)}): {_described(node.definition)}; "
        f"config {_config(node.definition)}; tags {_pairs(node.definition.tags)}"
        for node in job.graph.nodes_in_topological_order
    ]
    head = f"job {job.name}: {_described(job)}; executor {job.executor_def.name}; partitions {_partitions(job)}"
    return "\n".join([head, f"  tags {_pairs(job.tags)}", *ops])


def _partitions(one: Any) -> str:
    found = one.partitions_def
    return (
        f"{type(found).__name__} {found.timezone}"
        if isinstance(found, dg.TimeWindowPartitionsDefinition)
        else "none"
    )


def _config(definition: Any) -> str:
    fields = getattr(
        definition.config_schema.config_type if definition.config_schema else None, "fields", {}
    )
    return ", ".join(f"{name}{_default(fields[name])}" for name in sorted(fields)) or "none"


def _default(field: dg.Field) -> str:
    if field.is_required:
        return " required"
    return f" = {field.default_value!r}" if field.default_provided else ""


def _sensor(sensor: dg.SensorDefinition) -> str:
    facts = f"{sensor.sensor_type.value}; {sensor.default_status.value}; every {sensor.minimum_interval_seconds} s"
    targets = sorted(job.name for job in sensor.jobs) if sensor.has_jobs else []
    return (
        f"sensor {sensor.name}: {_described(sensor)}; {facts}; jobs {', '.join(targets) or 'none'}"
    )


def _schedule(schedule: dg.ScheduleDefinition) -> str:
    when = (
        f"{schedule.cron_schedule} {schedule.execution_timezone}; {schedule.default_status.value}"
    )
    return f"schedule {schedule.name}: {_described(schedule)}; {when}; job {schedule.job_name}"


def _asset(spec: dg.AssetSpec) -> str:
    deps = ", ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps)) or "none"
    kinds = ", ".join(sorted(spec.kinds))
    facts = f"group {spec.group_name}; partitions {_partitions(spec)}; deps {deps}; kinds {kinds}"
    return f"asset {spec.key.to_user_string()}: {_described(spec)}; {facts}"


def _paragraphs(created: Iterable[str]) -> str:
    return "\n\n".join(created) + "\n"


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "commands.txt": commands,
    "tables.txt": tables,
    "settings.txt": settings,
    "permissions.txt": permissions,
    "dagster.txt": dagster,
}
