"""What the payloads of the registries have in common: how they are read, and that they may be read at all."""

import json
from collections.abc import Collection, Mapping
from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from automation_pipeline.clients.crm_payloads import without_nul
from automation_pipeline.enrichment.domain.normalising import is_masked

# What a field may hold: normalising makes a text of it. A list or an object in its place is another schema.
Said = str | int | float | bool | None
Document = dict[str, object]


class Payload(BaseModel):
    """Whatever else is in the answer is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @property
    def masks(self) -> bool:
        """Whether anything in it, at any depth, is masked."""
        return _masks(self)


class NotUnderstoodError(Exception):
    """The text says what is wrong, without what was answered."""


Kind = TypeVar("Kind", bound=BaseModel)


def read(kind: type[Kind], body: bytes | None) -> tuple[Kind, Document]:
    """The answer in our words, and as it is."""
    if body is None:
        raise NotUnderstoodError("it is larger than 1 MB, or compressed")
    try:
        document = cast("object", from_json(without_nul(body), allow_inf_nan=False))
        # A number that nobody can hold, such as 1e999, cannot be kept either.
        json.dumps(document, allow_nan=False)
    except ValueError:
        raise NotUnderstoodError("it is not JSON") from None
    try:
        return kind.model_validate(document), cast("Document", document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "its top level"
        raise NotUnderstoodError(f"unexpected value at {where}") from None


def without(names: Collection[str], value: object) -> object:
    """The document without the entries of these names, at any depth."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {name: without(names, inner) for name, inner in entries if name not in names}
    if isinstance(value, list):
        return [without(names, inner) for inner in cast("list[object]", value)]
    return value


def _masks(value: object) -> bool:
    if isinstance(value, BaseModel):
        return any(_masks(getattr(value, name)) for name in type(value).model_fields)
    if isinstance(value, list | tuple):
        return any(map(_masks, cast("list[object]", value)))
    return is_masked(value)
