"""Secrets in payloads: by reference only, as {"secretRef": "NAME"}. What it stands for is in the environment of whoever
does the job; agents look in their own."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, cast

from pydantic import Field, WrapValidator

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel

FIELD = "secretRef"
# Two underscores in a row are between the parts of a variable's name, so that none is of two organisations.
_PATTERN = "^[A-Z](?:_?[A-Z0-9])*_?$"
_NAME = re.compile(_PATTERN)
LONGEST_NAME = 64
HOW = f'refer to it as {{"{FIELD}": "NAME"}}, and set ORG_SECRET__<ORGANISATION>__<NAME> where the job is done'
REFERENCE_FAULT = f'must be just {{"{FIELD}": "NAME"}}, a name of capitals, digits and single underscores'


class SecretRef(JsonModel):
    secret_ref: str = Field(pattern=_PATTERN, max_length=LONGEST_NAME, examples=["RCON_PASSWORD"])


def text_or_reference(given: object) -> str | SecretRef:
    if isinstance(given, str | SecretRef):
        return given
    name = reference_in(given)
    if name is None:
        raise ValueError(f'must be a text or {{"{FIELD}": "NAME"}}')
    return SecretRef(secret_ref=name)


def _read(given: object, _usual: object) -> str | SecretRef:
    """In place of pydantic's own reading, which complains about each of the two."""
    return text_or_reference(given)


TextOrSecret = Annotated[str | SecretRef, WrapValidator(_read)]


def reference_in(value: object) -> str | None:
    """The name of the secret that a value of JSON stands for; None: it is no reference, or not a whole one."""
    if not is_meant_as_reference(value):
        return None
    document = cast("Mapping[str, object]", value)
    name = document[FIELD]
    if len(document) > 1 or not isinstance(name, str) or len(name) > LONGEST_NAME:
        return None
    return name if _NAME.fullmatch(name) else None


def is_meant_as_reference(value: object) -> bool:
    return isinstance(value, Mapping) and FIELD in value


def variable_of(org_id: str, name: str) -> str:
    """Where this system looks for a secret of an organisation. Ids of organisations hold no underscores."""
    return f"ORG_SECRET__{org_id.upper().replace('-', '_')}__{name}"


def names_in(value: object) -> Iterator[str]:
    """Of all the secrets that a value of JSON refers to."""
    left = [value]
    while left:
        one = left.pop()
        name = reference_in(one)
        if name is not None:
            yield name
        elif isinstance(one, Mapping):
            left.extend(cast("Mapping[str, object]", one).values())
        elif isinstance(one, list | tuple):
            left.extend(cast("list[object]", one))


def secrets_of(value: object, org_id: str, environment: Mapping[str, str]) -> dict[str, str]:
    """By name, what a value of JSON refers to. InvalidInputError names the variable that is missing."""
    found: dict[str, str] = {}
    for name in names_in(value):
        variable = variable_of(org_id, name)
        if not environment.get(variable):
            raise InvalidInputError(f"The secret {name} is not known here: set the environment variable {variable}.")
        found[name] = environment[variable]
    return found


def with_secrets(value: object, secrets: Mapping[str, str]) -> object:
    """The same value, each reference replaced by what it stands for."""
    name = reference_in(value)
    if name is not None:
        return secrets[name]
    if isinstance(value, Mapping):
        return {key: with_secrets(each, secrets) for key, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [with_secrets(each, secrets) for each in cast("list[object]", value)]
    return value
