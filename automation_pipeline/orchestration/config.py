"""Run configs: a strict base class, ids, and the selection of an automation run."""

import re
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import dagster as dg
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_DIGITS, LARGEST_ID
from automation_pipeline.core.settings import load_settings

# What Dagster makes of a Python type in a run config also accepts `{env: NAME}`, and what it makes
# of these does not.
PLAIN: dict[object, object] = {kind: dg.Field(kind).config_type for kind in (str, int, bool)}


class StrictConfig(dg.Config):  # noqa: TID251  the one place
    """Refuses a misspelt field, and `{env: NAME}` as a value: whoever may launch a run could read
    the secrets of the worker with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Dagster derives the schema of a run config from these annotations; pydantic does not look
        at them again."""
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            field.annotation = cast("type", plain(field.annotation))


def plain(annotation: object) -> object:
    """The annotation as Dagster is to read it: no part of it takes its value from an environment
    variable."""
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return PLAIN.get(annotation, annotation)
    parts = tuple(plain(part) for part in get_args(annotation))
    return Union[parts] if origin is UnionType else cast("Any", origin)[parts]  # noqa: UP007  found at run time


def every(seconds: int) -> int:
    """A sensor's interval, unless `AUTOMATION_SENSOR_MAX_INTERVAL_SECONDS` asks for a shorter
    one."""
    return min(seconds, load_settings().automation_sensor_max_interval_seconds)


_DIGITS = re.compile(ID_DIGITS)


def check_ids(**given: int | None) -> None:
    """InvalidInputError naming every field that can be no id; None is one that is not given."""
    faults = tuple(
        (name, f"must be from 1 to {LARGEST_ID}") for name, one in given.items() if not _may_be(one)
    )
    if faults:
        raise InvalidInputError("Invalid config", faults)


def id_in(given: object) -> int | None:
    """None where it can be none: people may write into config and tags what they like."""
    text = str(given)
    return int(text) if _DIGITS.fullmatch(text) and int(text) <= LARGEST_ID else None


def _may_be(one: int | None) -> bool:
    return one is None or 1 <= one <= LARGEST_ID


class SelectionConfig(StrictConfig):
    """Dagster has no optional choice: what `dateRange` may be is in its description."""

    model_config = ConfigDict(alias_generator=to_camel)

    mode: Literal["date_range", "manual", "filter"] = Field(
        description="`manual` takes `ficheIds`; `date_range` and `filter` are one and take the days of `dateRange`."
    )
    date_range: str | None = Field(
        default=None,
        description="`last_24h`, `yesterday`, `last_week`, `last_month` or `custom`; needed unless the mode is manual.",
    )
    custom_start_date: str | None = Field(
        default=None, description="The first day of `custom`, as a quoted DD/MM/YYYY or YYYY-MM-DD."
    )
    custom_end_date: str | None = Field(
        default=None,
        description="The last day of `custom`, as the first; without it, the first day alone.",
    )
    groupes: list[str] = Field(
        default=[], description="Only fiches of these groupes; empty takes all."
    )
    only_with_recordings: bool = Field(
        default=False, description="Leave out fiches without a recording."
    )
    only_unaudited: bool = Field(default=False, description="Leave out fiches that have an audit.")
    use_rlm: bool = Field(
        default=False, description="The model reads the calls with tools instead of in the prompt."
    )
    max_fiches: int | None = Field(
        default=None, description="At most so many fiches; without it, all."
    )
    max_recordings_per_fiche: int | None = Field(
        default=None,
        description="Leave out fiches with more recordings; without it, AUTOMATION_MAX_RECORDINGS_PER_FICHE.",
    )
    fiche_ids: list[str] = Field(
        default=[],
        description='The fiches of `manual`, each quoted; one text may hold several: "1900417, 1900418".',
    )

    def said(self) -> dict[str, object]:
        """What was given, as the JSON of a schedule has it: Dagster fills in the defaults of what
        was not."""
        return self.model_dump(by_alias=True, exclude_defaults=True)
