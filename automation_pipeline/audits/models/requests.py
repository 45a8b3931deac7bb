"""The filter of audit lists and groups, the change of an audit, and ids in request bodies."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from automation_pipeline.audits.models.audits import AuditStatus, Niveau
from automation_pipeline.core.json_model import (
    ID_DIGITS,
    ID_SCHEMA,
    LARGEST_ID,
    BigCount,
    Count,
    Day,
    JsonModel,
    ListOf,
    Moment,
    RowId,
    SearchText,
)


def _number_or_digits(given: object) -> object:
    """Responses contain ids as text, but some callers send numbers. In JSON 11.0 is an integer."""
    if (isinstance(given, str) and re.fullmatch(ID_DIGITS, given)) or (
        isinstance(given, float) and given.is_integer()
    ):
        return int(given)
    if type(given) is not int:
        raise ValueError("must be a whole number, or its digits as a text")
    return given


IdInBody = Annotated[
    int, Field(ge=1, le=LARGEST_ID), BeforeValidator(_number_or_digits), WithJsonSchema(ID_SCHEMA)
]
TriggerSource = Annotated[str, Field(min_length=1, max_length=50)]
UserId = Annotated[str, Field(min_length=1, max_length=200)]

INVALID_CHANGE = "The audit change is not valid"


class AuditChange(JsonModel):
    """Omitted fields stay unchanged; null clears a field."""

    model_config = ConfigDict(alias_generator=None)

    notes: Annotated[str | None, Field(max_length=20_000)] = None
    deleted: StrictBool = False
    automation_schedule_id: IdInBody | None = None
    automation_run_id: IdInBody | None = None
    trigger_source: TriggerSource | None = None
    trigger_user_id: UserId | None = None


Score = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class SortBy(StrEnum):
    CREATED_AT = "created_at"
    COMPLETED_AT = "completed_at"
    SCORE_PERCENTAGE = "score_percentage"
    DURATION_MS = "duration_ms"


class SortOrder(StrEnum):
    ASC = "asc"
    DESC = "desc"


class GroupBy(StrEnum):
    FICHE = "fiche"
    AUDIT_CONFIG = "audit_config"
    STATUS = "status"
    NIVEAU = "niveau"
    AUTOMATION_SCHEDULE = "automation_schedule"
    AUTOMATION_RUN = "automation_run"
    GROUPE = "groupe"
    CREATED_DAY = "created_day"
    SCORE_BUCKET = "score_bucket"


class AuditFilter(JsonModel):
    """An empty field does not filter. Only completed audits have a score and a compliance verdict.
    A deleted audit is never the latest. Days are those of the configured zone, both ends included."""

    model_config = ConfigDict(alias_generator=None)

    fiche_ids: ListOf[str] = ()
    status: ListOf[AuditStatus] = ()
    is_compliant: bool | None = None
    date_from: Moment | None = None
    date_to: Moment | None = None
    audit_config_ids: ListOf[RowId] = ()
    groupes: ListOf[str] = ()
    groupe_query: SearchText = ""
    agence_query: SearchText = ""
    prospect_query: SearchText = ""
    sales_dates: ListOf[Day] = ()
    sales_date_from: Day | None = None
    sales_date_to: Day | None = None
    has_recordings: bool | None = None
    recordings_count_min: Count | None = None
    recordings_count_max: Count | None = None
    fetched_at_from: Moment | None = None
    fetched_at_to: Moment | None = None
    last_revalidated_from: Moment | None = None
    last_revalidated_to: Moment | None = None
    niveau: ListOf[Niveau] = ()
    score_min: Score | None = None
    score_max: Score | None = None
    duration_min_ms: BigCount | None = None
    duration_max_ms: BigCount | None = None
    tokens_min: BigCount | None = None
    tokens_max: BigCount | None = None
    has_failed_steps: bool | None = None
    automation_schedule_ids: ListOf[RowId] = ()
    automation_run_ids: ListOf[RowId] = ()
    trigger_source: ListOf[str] = ()
    q: SearchText = ""
    latest_only: bool = True
    include_deleted: bool = False
    sort_by: SortBy = SortBy.CREATED_AT
    sort_order: SortOrder = SortOrder.DESC
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    offset: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _empty_is_not_given(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        return {name: value for name, value in given.items() if value not in ("", [""], None)}


class AuditGrouping(AuditFilter):
    """`limit` and `offset` count groups; sorting does not apply to them."""

    group_by: GroupBy
    bucket_size: Annotated[int, Field(ge=1, le=100)] = 10


def last_bucket(size: int) -> int:
    """The lower bound of the last bucket of scores."""
    return 99 // size * size


def bucket_name(lowest: int, size: int) -> str:
    return f"{lowest}-{min(lowest + size, 100)}"
