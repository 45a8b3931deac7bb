"""Payloads of service jobs, secret references in payloads, and plain secrets that are refused."""

import re
from base64 import b64decode
from binascii import Error as NoBase64Error
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Annotated, cast
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from automation_pipeline.core.addresses import check_https_url, check_url, origin_of
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_DIGITS, ID_SCHEMA, Id, JsonModel, text_fault
from automation_pipeline.core.masking import (
    holds_token,
    is_counter,
    is_secret,
    is_sensitive,
    words_of,
)

FIELD = "secretRef"
# Two underscores in a row are between the parts of a variable's name, so that none is of two
# organisations.
_PATTERN = "^[A-Z](?:_?[A-Z0-9])*_?$"
_NAME = re.compile(_PATTERN)
LONGEST_SECRET_NAME = 64
HOW = f'refer to it as {{"{FIELD}": "NAME"}}, and set ORG_SECRET__<ORGANISATION>__<NAME> where the job is done'
REFERENCE_FAULT = (
    f'must be just {{"{FIELD}": "NAME"}}, a name of capitals, digits and single underscores'
)


class SecretRef(JsonModel):
    secret_ref: str = Field(
        pattern=_PATTERN, max_length=LONGEST_SECRET_NAME, examples=["RCON_PASSWORD"]
    )


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
    """The name of the secret that a value of JSON stands for; None: it is no reference, or not a
    whole one."""
    if not is_meant_as_reference(value):
        return None
    document = cast("Mapping[str, object]", value)
    name = document[FIELD]
    if len(document) > 1 or not isinstance(name, str) or len(name) > LONGEST_SECRET_NAME:
        return None
    return name if _NAME.fullmatch(name) else None


def is_meant_as_reference(value: object) -> bool:
    return isinstance(value, Mapping) and FIELD in value


def variable_of(org_id: str, name: str) -> str:
    """Where this system looks for a secret of an organisation. Ids of organisations hold no
    underscores."""
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
    """By name, what a value of JSON refers to. InvalidInputError names the variable that is
    missing."""
    found: dict[str, str] = {}
    for name in names_in(value):
        variable = variable_of(org_id, name)
        if not environment.get(variable):
            raise InvalidInputError(
                f"The secret {name} is not known here: set the environment variable {variable}."
            )
        found[name] = environment[variable]
    return found


def with_secrets(value: object, secrets: Mapping[str, str]) -> object:
    """The same value, each reference replaced by what it stands for."""
    name = reference_in(value)
    if name is not None:
        return secrets[name]
    if isinstance(value, Mapping):
        return {
            key: with_secrets(each, secrets)
            for key, each in cast("Mapping[str, object]", value).items()
        }
    if isinstance(value, list | tuple):
        return [with_secrets(each, secrets) for each in cast("list[object]", value)]
    return value


# Keys to something, not of something: an issue's key or the one to sort by is none.
_KEYS_TO = frozenset(
    {
        "account", "admin", "app", "application", "client", "consumer", "function", "functions", "genie", "hook",
        "ingest", "ingestion", "integration", "licence", "license", "master", "routing", "service", "shared", "storage",
        "subscription", "user", "webhook", "write",
    }
)  # fmt: skip
_ENDINGS = tuple(f"{word}key" for word in _KEYS_TO)
# Where a name alone does not tell: these mean a secret in a header or in a query.
_SENT_WORDS = frozenset({"auth", "key", "session", "sid", "sig"})
_KEYS_OF = frozenset({"cache", "group", "order", "sort"})
_SCHEME = re.compile(r"(?i)\s*(?:basic|bearer|digest|hmac|negotiate|token|[a-z]*[_-]?key)\s+\S")
# After the name of a scheme a sentence may go on: a credential is one word, and not one of a
# language.
_BASIC = re.compile(r"(?i)\s*basic\s+([a-z0-9+/_-]{4,}={0,2})\s*")
_BEARER = re.compile(r"(?i)\s*bearer\s+[\w.~+/=-]{6,}\s*")
_KEYED = re.compile(
    r"(?i)\s*(?:digest|hmac|negotiate|token|[a-z]*[_-]?key)\s+(?=\S*\d)[\w.~+/=:-]{8,}\s*"
)
_NAMES, _VALUES = ("name", "key", "header"), ("value", "val")


def names_secret(name: str) -> bool:
    """Anywhere in a payload."""
    words = words_of(name)
    joined = "".join(words)
    return is_secret(name) or "sig" in words or joined == "session" or joined.endswith(_ENDINGS)


def is_secret_when_sent(name: str) -> bool:
    """Of a header or a parameter of a query."""
    named = set(words_of(name))
    said = named & _SENT_WORDS
    return (
        is_sensitive(name)
        or names_secret(name)
        or bool(said - {"key"} or (said and not named & _KEYS_OF))
    )


def is_scheme(text: str) -> bool:
    """A header's value that begins as those do by which somebody shows who they are."""
    return _SCHEME.match(text) is not None


def looks_secret(text: str) -> bool:
    """Wherever it stands."""
    basic = _BASIC.fullmatch(text)
    if basic is not None:
        return _holds_password(basic[1])
    return bool(_BEARER.fullmatch(text) or _KEYED.fullmatch(text) or holds_token(text))


def named_beside(document: Mapping[str, object]) -> tuple[str, str] | None:
    """In {"name": "Authorization", "value": ...}: the field in which the secret is, and what it is
    called."""
    fields = {name.lower(): name for name in document if len(name) <= len("header")}
    called = next((document[fields[name]] for name in _NAMES if name in fields), None)
    field = next((fields[name] for name in _VALUES if name in fields), None)
    if field is None or not isinstance(called, str) or not names_secret(called):
        return None
    return field, called[:100]


def _holds_password(encoded: str) -> bool:
    """A user's name and a password, with a colon between them."""
    try:
        return b":" in b64decode(
            encoded.rstrip("=") + "=" * (-len(encoded.rstrip("=")) % 4), altchars=b"-_"
        )
    except NoBase64Error:
        return False


DEEPEST = 20
LONGEST_PAYLOAD_KEY = 200
PLAIN_SECRET = f"must not be written here: {HOW}"

PayloadFault = tuple[str, str]


@dataclass(frozen=True)
class _Place:
    """Under a sensitive name everything is, however deep."""

    path: str
    name: str
    value: object
    is_sensitive: bool
    depth: int


def payload_faults(payload: Mapping[str, object]) -> list[PayloadFault]:
    """Where and why, in order. No sentence holds a value."""
    return list(_faults(payload))


def _faults(payload: Mapping[str, object]) -> Iterator[PayloadFault]:
    left = [_Place("", "", payload, is_sensitive=False, depth=0)]
    while left:
        place = left.pop()
        if reference_in(place.value) is not None:
            continue
        fault = _fault(place)
        if fault is not None:
            yield place.path, fault
        else:
            left.extend(reversed(list(_inside(place))))


def _fault(place: _Place) -> str | None:
    if place.depth > DEEPEST:
        return f"must not be nested more than {DEEPEST} deep"
    if len(place.name) > LONGEST_PAYLOAD_KEY:
        return f"has a name of more than {LONGEST_PAYLOAD_KEY} characters"
    if is_meant_as_reference(place.value):
        return REFERENCE_FAULT
    if (place.is_sensitive and _says_something(place)) or _is_secret_text(place):
        return PLAIN_SECRET
    return _storage_fault(place)


def _says_something(place: _Place) -> bool:
    """What is empty, or only yes or no, is nobody's secret; a number under a counter's name is a
    count."""
    value = place.value
    if (
        isinstance(value, bool)
        or value is None
        or value == ""
        or isinstance(value, Mapping | list | tuple)
    ):
        return False
    return not (isinstance(value, int | float) and is_counter(place.name))


def _is_secret_text(place: _Place) -> bool:
    text = place.value
    return isinstance(text, str) and (looks_secret(text) or bool(text and names_secret(place.name)))


def _storage_fault(place: _Place) -> str | None:
    if isinstance(place.value, float) and not isfinite(place.value):
        return "must be a finite number"
    texts = (place.name, place.value)
    return next(
        (fault for text in texts if isinstance(text, str) and (fault := text_fault(text))), None
    )


def _inside(place: _Place) -> Iterable[_Place]:
    if isinstance(place.value, Mapping):
        document = {
            str(key): value for key, value in cast("Mapping[object, object]", place.value).items()
        }
        field, called = named_beside(document) or (None, "")
        for key, value in document.items():
            yield _within(place, key, called if key == field else key, value)
    elif isinstance(place.value, list | tuple):
        for number, value in enumerate(cast("list[object]", place.value)):
            yield _within(place, str(number), place.name, value)


def _within(place: _Place, step: str, name: str, value: object) -> _Place:
    path = (
        f"{place.path}.{step[:LONGEST_PAYLOAD_KEY]}" if place.path else step[:LONGEST_PAYLOAD_KEY]
    )
    return _Place(path, name, value, place.is_sensitive or is_sensitive(name), place.depth + 1)


def _whole_number(given: object) -> object:
    if isinstance(given, str) and re.fullmatch(ID_DIGITS, given):
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise ValueError("must be an id")


KnownId = Annotated[
    Id, Field(ge=1), BeforeValidator(_whole_number), WithJsonSchema(ID_SCHEMA, mode="validation")
]
_COMPANY = re.compile(r"^([0-9]{9}|[0-9]{14})$")


class AutomationRunPayload(JsonModel):
    schedule_id: KnownId = Field(description="The automation schedule of which a run is asked for.")


class PricingRulePayload(JsonModel):
    rule_id: KnownId = Field(description="The pricing rule of which a run is asked for.")
    force: StrictBool = Field(
        default=False, description="Whether the rest of the rule after its last run is cut short."
    )


def _number(text: str) -> str:
    if not _COMPANY.fullmatch(text):
        raise ValueError("must be the nine digits of a SIREN or the fourteen of a SIRET")
    return text


class CompanyEnrichmentPayload(JsonModel):
    company: Annotated[
        str,
        AfterValidator(_number),
        Field(
            description="Its SIREN or SIRET, in digits alone.",
            json_schema_extra={"pattern": _COMPANY.pattern},
        ),
    ]
    force: StrictBool = Field(
        default=False, description="Whether the registers are asked however fresh the answer is."
    )


LONGEST_URL = 2000
LONGEST_VALUE = 4000
MOST_HEADERS = 50
ORIGINS_SETTING = "ORG_JOBS_HTTPS_ALLOWED_ORIGINS"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# What belongs to the connection, and what makes all attempts of a run one wish.
_OURS = frozenset(
    {
        "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive", "proxy-connection", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


class HttpMethod(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


def _usable_address(given: str | SecretRef) -> str | SecretRef:
    if isinstance(given, str):
        fault = _address_fault(given)
        if fault is not None:
            raise ValueError(fault)
    return given


def _address_fault(url: str) -> str | None:
    """Whether the address may be called is checked by `HttpsCallPayload.check_address`."""
    if len(url) > LONGEST_URL:
        return f"must have at most {LONGEST_URL} characters"
    try:
        check_url(url, (origin_of(url),), name="url")
        parts = urlsplit(url)
    except InvalidInputError:
        return "must be a web address such as https://example.com/path, without user and password"
    if parts.fragment:
        return "must not have a fragment"
    names = (name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    secret = next(filter(is_secret_when_sent, names), None)
    if secret is not None:
        return f"must not hold the parameter {secret[:100]!r}: send it in a header, or make the whole url a reference"
    return None


def header_faults(headers: Mapping[str, str | SecretRef]) -> Iterable[str]:
    names = [name.lower() for name in headers]
    for name, value in headers.items():
        fault = _header_fault(name, value)
        if fault is None and names.count(name.lower()) > 1:
            fault = "is given twice"
        if fault is not None:
            yield f"{name[:100]!r} {fault}"


def _header_fault(name: str, value: str | SecretRef) -> str | None:
    if not _HEADER_NAME.fullmatch(name):
        return "is not a name of a header"
    if name.lower() in _OURS:
        return "is set by whoever makes the call"
    if isinstance(value, SecretRef):
        return None
    if value and (is_secret_when_sent(name) or is_scheme(value)):
        return PLAIN_SECRET
    if len(value) > LONGEST_VALUE or not (value.isascii() and value.isprintable()):
        return f"must be at most {LONGEST_VALUE} plain characters on one line"
    return None


class HttpsCallPayload(JsonModel):
    url: Annotated[TextOrSecret, AfterValidator(_usable_address)] = Field(
        description="An https:// address, or the reference to one that is secret as a whole."
    )
    method: HttpMethod = HttpMethod.POST
    headers: dict[str, TextOrSecret] = Field(default={}, max_length=MOST_HEADERS)
    body: JsonValue = Field(
        default=None, description="Sent as JSON; references in it are replaced."
    )
    expect_status: tuple[Annotated[StrictInt, Field(ge=200, le=599)], ...] = Field(
        default=(),
        max_length=50,
        description="The statuses that are a success; without any: all of 200 to 299.",
    )
    timeout_seconds: StrictInt = Field(default=30, ge=1, le=120)

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, given: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        faults = list(header_faults(given))
        if faults:
            raise ValueError("; ".join(faults))
        return given

    @model_validator(mode="after")
    def _get_carries_nothing(self) -> "HttpsCallPayload":
        if self.method is HttpMethod.GET and self.body is not None:
            raise ValueError("A GET carries no body.")
        return self

    def check_address(self, allowed_origins: Collection[str]) -> None:
        """InvalidInputError, if the call would be refused whatever the host's name resolves to: the
        name is resolved only when the call is made, and so is a reference to a secret."""
        if isinstance(self.url, str):
            check_https_url(self.url, allowed_origins, name="url", setting=ORIGINS_SETTING)

    def is_good(self, status: int) -> bool:
        return status in self.expect_status if self.expect_status else 200 <= status < 300
