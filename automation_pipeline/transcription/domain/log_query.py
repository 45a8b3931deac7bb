"""Which lines of a fiche's transcription log are wanted, as callers write it in a query string."""

from collections.abc import Mapping
from typing import Annotated, cast

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.core.notes import LogLevel
from automation_pipeline.core.query_values import Count, Moment

COMPLAINT = "The logs cannot be shown"

RunId = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]


class LogQuery(JsonModel):
    """`run_id` and `trace_id` mean the same: the run that wrote the line."""

    model_config = ConfigDict(alias_generator=None)

    run_id: RunId | None = None
    trace_id: RunId | None = None
    level: LogLevel | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    offset: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _empty_is_not_given(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        return {name: value for name, value in cast("Mapping[str, object]", given).items() if value not in ("", None)}

    @property
    def trace(self) -> str | None:
        return self.run_id or self.trace_id


def read_log_query(given: Mapping[str, object]) -> LogQuery:
    """InvalidInputError that names every parameter at fault."""
    try:
        return parse(LogQuery, given, COMPLAINT)
    except InvalidInputError as error:
        moments = [field for field, _ in error.fields if field in {"since", "until"}]
        if not moments:
            raise
        raise InvalidInputError(f"Invalid {moments[0]} (expected ISO 8601 date-time)", error.fields) from None
