"""The page docs/configuration.md, written from the settings themselves: `make docs`."""

import sys
from datetime import date
from types import NoneType
from typing import Literal, get_args, get_origin

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from automation_pipeline.core.settings import Settings
from automation_pipeline.core.settings.types import Origins, Temperature
from automation_pipeline.core.settings.unused import UNUSED

HEAD = """# Configuration

Every setting is an environment variable; an empty one counts as unset. A wrong value stops the command with one
sentence that names the variable. This page is written by `make docs` from `automation_pipeline/core/settings/`.

| Variable | Values | Default | Meaning |
|---|---|---|---|
"""


UNUSED_HEAD = """
## Not used here
These settings of the original system have no meaning here. `automation doctor` names those that are set.

| Variable | Not used here |
|---|---|
"""


def configuration_page() -> str:
    used = "".join(_row(name, field) for name, field in Settings.model_fields.items())
    return HEAD + used + UNUSED_HEAD + "".join(f"| `{name}` | {reason} |\n" for name, reason in UNUSED.items())


def _row(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    variable = alias.choices[0] if isinstance(alias, AliasChoices) else name.upper()
    unset = field.default in (None, (), "", PydanticUndefined)
    default = "none" if unset else f"`{int(field.default) if isinstance(field.default, bool) else field.default}`"
    return f"| `{variable}` | {_values(field)} | {default} | {field.description} |\n"


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    if field.annotation == get_args(Temperature)[0]:
        return "number from 0 to 2, or `none`"
    if field.annotation == get_args(Origins)[0]:
        return "origins, separated by commas"
    given = get_args(field.annotation) or (field.annotation,)
    # An optional checked text comes as Annotated[str, ...] | None.
    kinds: list[object] = [getattr(kind, "__origin__", kind) for kind in given if kind is not NoneType]
    words: dict[object, str] = {str: "text", date: "day", bool: "`1` or `0`", int: "whole number", float: "number"}
    bounds = [
        f"{word} {value}"
        for limit in field.metadata
        for attribute, word in (("gt", "above"), ("ge", "from"), ("le", "to"))
        if (value := getattr(limit, attribute, None)) is not None
    ]
    return " ".join([words.get(kinds[0], "secret"), *bounds])


if __name__ == "__main__":
    sys.stdout.write(configuration_page())
