"""Which fiches an automation is about."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.json_model import JsonModel

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


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
    mode: SelectionMode
    date_range: DatePreset | None = None
    custom_start_date: str | None = None
    custom_end_date: str | None = None
    groupes: tuple[str, ...] = ()
    only_with_recordings: bool = False
    only_unaudited: bool = False
    use_rlm: bool = False
    max_fiches: Count | None = None
    max_recordings_per_fiche: Count | None = None
    fiche_ids: tuple[str, ...] = ()


def manual_ids(selection: FicheSelection) -> tuple[str, ...]:
    """Each id once, in the order given. One entry may hold several, separated by spaces or commas."""
    ids = (fiche_id for entry in selection.fiche_ids for fiche_id in re.split(r"[\s,]+", entry) if fiche_id)
    return tuple(dict.fromkeys(ids))[: selection.max_fiches]
