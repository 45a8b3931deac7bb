"""Which audits a list is about, as callers write it in a query string, and what a list can be grouped by."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, cast

from pydantic import ConfigDict, Field, model_validator

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.findings import Niveau
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.core.query_values import BigCount, Count, Day, ListOf, Moment, RowId, SearchText

COMPLAINT = "The list of audits cannot be made"

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
    """An empty field lets everything through. Only completed audits have a score and are compliant or not. A deleted
    audit is never the latest. Days are those of the configured zone, both ends included."""

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
    def _empty_is_not_given(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        fields = cast("Mapping[str, object]", given)
        return {name: value for name, value in fields.items() if value not in ("", [""], None)}


class AuditGrouping(AuditFilter):
    """`limit` and `offset` are about groups; sorting means nothing to them."""

    group_by: GroupBy
    bucket_size: Annotated[int, Field(ge=1, le=100)] = 10


def read_filter(given: Mapping[str, object]) -> AuditFilter:
    """InvalidInputError that names every parameter at fault."""
    return parse(AuditFilter, given, COMPLAINT)


def read_grouping(given: Mapping[str, object]) -> AuditGrouping:
    """InvalidInputError that names every parameter at fault."""
    return parse(AuditGrouping, given, COMPLAINT)
