"""What people say when they pause a schedule or leave out its next run."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.org_jobs.domain.field_rules import ZonedInstant

LONGEST_REASON = 1000

Reason = Annotated[str, Field(max_length=LONGEST_REASON)]


class SkipWish(JsonModel):
    reason: Reason | None = Field(default=None, description="Why, for others to see.")


class PauseWish(SkipWish):
    until: ZonedInstant | None = Field(default=None, description="When it goes on by itself.")


def read_pause(reason: str | None, until: datetime | None, now: datetime) -> PauseWish:
    complaint = "Invalid pause data"
    wish = parse(PauseWish, {"reason": reason, "until": until}, complaint)
    if wish.until is not None and wish.until <= now:
        raise InvalidInputError(complaint, (("until", "must lie ahead"),))
    return wish


def read_skip(reason: str | None) -> SkipWish:
    return parse(SkipWish, {"reason": reason}, "Invalid skip data")
