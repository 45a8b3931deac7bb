"""What definitions take from their configuration: the base of every run config, and how often sensors look."""

from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import dagster as dg
from pydantic import ConfigDict

from automation_pipeline.core.settings import load_settings

# What Dagster makes of a Python type in a run config also accepts `{env: NAME}`, and what it makes of these does not.
PLAIN: dict[object, object] = {kind: dg.Field(kind).config_type for kind in (str, int, bool)}


class StrictConfig(dg.Config):  # noqa: TID251  the one place
    """Refuses a misspelt field, and `{env: NAME}` as a value: whoever may launch a run could read the secrets of the
    worker with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Dagster derives the schema of a run config from these annotations; pydantic does not look at them again."""
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.annotation = cast("type", plain(field.annotation))


def plain(annotation: object) -> object:
    """The annotation as Dagster is to read it: no part of it takes its value from an environment variable."""
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return PLAIN.get(annotation, annotation)
    parts = tuple(plain(part) for part in get_args(annotation))
    return Union[parts] if origin is UnionType else cast("Any", origin)[parts]  # noqa: UP007  found at run time


def every(seconds: int) -> int:
    """A sensor's interval, unless `AUTOMATION_SENSOR_MAX_INTERVAL_SECONDS` asks for a shorter one."""
    return min(seconds, load_settings().automation_sensor_max_interval_seconds)
