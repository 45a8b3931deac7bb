"""The bodies by which audits are asked for, as callers send them."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, StrictBool

from automation_pipeline.audits.domain.body_values import SentId, TriggerSource, UserId
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.core.query_values import DigitsText

COMPLAINT = "The audit cannot be asked for so"
MISSING = "Missing required parameters"
MOST_FICHES = 10_000

UseRlm = Annotated[StrictBool, Field(validation_alias=AliasChoices("use_rlm", "useRlm"))]
ConfigId = Annotated[SentId, Field(validation_alias=AliasChoices("audit_config_id", "audit_id"))]


def _each_once(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(given))


class LatestWish(JsonModel):
    """By the newest active configuration."""

    model_config = ConfigDict(alias_generator=None)

    fiche_id: DigitsText
    user_id: UserId | None = None
    use_rlm: UseRlm = False


class RunWish(LatestWish):
    audit_config_id: ConfigId


class AuditWish(RunWish):
    """May belong to an automation, and say what asked for it."""

    automation_schedule_id: SentId | None = None
    automation_run_id: SentId | None = None
    trigger_source: TriggerSource = "api"


class BatchWish(JsonModel):
    """Followed as one. By the newest active configuration unless one is named."""

    model_config = ConfigDict(alias_generator=None)

    fiche_ids: Annotated[
        tuple[DigitsText, ...], Field(min_length=1, max_length=MOST_FICHES), AfterValidator(_each_once)
    ]
    audit_config_id: SentId | None = None
    user_id: UserId | None = None
    use_rlm: UseRlm = False


class RerunWish(JsonModel):
    """What the model is told beside, under either name."""

    custom_prompt: str | None = Field(default=None, max_length=5000)
    custom_instructions: str | None = Field(default=None, max_length=5000)

    @property
    def instructions(self) -> str | None:
        return self.custom_prompt or self.custom_instructions


Asked = TypeVar("Asked", bound=LatestWish)


def read_wish(model: type[Asked], given: Mapping[str, object]) -> Asked:
    """InvalidInputError that names every field at fault, and says so where one is missing."""
    try:
        return parse(model, given, COMPLAINT)
    except InvalidInputError as error:
        if not any(fault == "is required" for _, fault in error.fields):
            raise
        alone = model is LatestWish
        raise InvalidInputError("Missing required parameter" if alone else MISSING, error.fields) from None
