"""Which fiches an automation is about. What is stored is taken as it is; what people give must keep the rules."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from automation_pipeline.automation.domain.field_rules import (
    Day,
    FicheIds,
    Flag,
    Groupes,
    Texts,
    TrimmedTexts,
    Whole,
    day_of,
)
from automation_pipeline.core.json_model import JsonModel, parse

_AT_LEAST_ONE = Field(ge=1, le=2**31 - 1)
Count = Annotated[int, _AT_LEAST_ONE]
WholeCount = Annotated[Whole, _AT_LEAST_ONE]


class SelectionMode(StrEnum):
    DATE_RANGE = "date_range"
    MANUAL = "manual"
    FILTER = "filter"


class DatePreset(StrEnum):
    LAST_24H = "last_24h"
    YESTERDAY = "yesterday"
    LAST_WEEK = "last_week"
    LAST_MONTH = "last_month"
    CUSTOM = "custom"


class FicheSelection(JsonModel):
    """`filter` and `date_range` are one: both pick by the days of the sale."""

    mode: SelectionMode
    date_range: DatePreset | None = None
    custom_start_date: str | None = None
    custom_end_date: str | None = None
    groupes: TrimmedTexts = ()
    only_with_recordings: bool = False
    only_unaudited: bool = False
    use_rlm: bool = False
    max_fiches: Count | None = None
    max_recordings_per_fiche: Count | None = None
    fiche_ids: Texts = ()


class SelectionInput(FicheSelection):
    """A selection as people give it. Without a last day, `custom` is the first day alone."""

    custom_start_date: Day = None
    custom_end_date: Day = None
    groupes: Groupes = ()
    only_with_recordings: Flag = False
    only_unaudited: Flag = False
    use_rlm: Flag = False
    max_fiches: WholeCount | None = None
    max_recordings_per_fiche: WholeCount | None = None
    fiche_ids: FicheIds = ()

    @model_validator(mode="before")
    @classmethod
    def _looks_at_what_is_left_out(cls, given: object) -> object:
        """A field that is missing can be named only if it is there."""
        if not isinstance(given, dict):
            return given
        return {"dateRange": None, "customStartDate": None, **cast("dict[str, object]", given)}

    @field_validator("date_range")
    @classmethod
    def _is_said_when_days_are_picked(cls, preset: DatePreset | None, info: ValidationInfo) -> DatePreset | None:
        mode: SelectionMode | None = info.data.get("mode")
        if preset is None and mode in {SelectionMode.DATE_RANGE, SelectionMode.FILTER}:
            raise ValueError(f"is required when the mode is {mode}")
        return preset

    @field_validator("custom_start_date")
    @classmethod
    def _is_said_for_custom_days(cls, start: str | None, info: ValidationInfo) -> str | None:
        if start is None and info.data.get("date_range") is DatePreset.CUSTOM:
            raise ValueError("is required when dateRange is custom")
        return start

    @field_validator("custom_end_date")
    @classmethod
    def _does_not_lie_before_the_start(cls, end: str | None, info: ValidationInfo) -> str | None:
        start: str | None = info.data.get("custom_start_date")
        if start and end and day_of(end) < day_of(start):
            raise ValueError("must not lie before customStartDate")
        return end


def parse_selection(given: Mapping[str, object]) -> SelectionInput:
    return parse(SelectionInput, given, "Invalid fiche selection data")
