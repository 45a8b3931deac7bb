"""Whose status is asked for."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse


class StatusWish(JsonModel):
    fiche_ids: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = Field(max_length=1000)


def read_status_wish(body: Mapping[str, object]) -> StatusWish:
    if not isinstance(body.get("ficheIds"), list):
        raise InvalidInputError("ficheIds must be an array", (("ficheIds", "must be an array"),))
    return parse(StatusWish, body, "Invalid ficheIds")
