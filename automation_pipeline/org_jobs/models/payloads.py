"""Payloads of service jobs, secret references in payloads, and the rejection of plain secrets."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Annotated, cast
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    WrapValidator,
    field_validator,
    model_validator,
)

from automation_pipeline.core.addresses import check_https_url, check_url, origin_of
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, text_fault
from automation_pipeline.core.masking import (
    holds_token,
    is_counter,
    is_secret,
    is_sensitive,
    words_of,
)
from automation_pipeline.org_jobs.models.organisations import KnownId, matching, refused_by

AUTOMATION_RUN = "AUTOMATION_RUN"
PRICING_RULE_APPLY = "PRICING_RULE_APPLY"
COMPANY_ENRICHMENT = "COMPANY_ENRICHMENT"
HTTPS_CALL = "HTTPS_CALL"

FIELD = "secretRef"
# No two underscores in a row: they separate the parts of a variable's name.
_PATTERN = "^[A-Z](?:_?[A-Z0-9])*_?$"
_NAME = re.compile(_PATTERN)
LONGEST_SECRET_NAME = 64
LONGEST_PAYLOAD_KEY = 200
DEEPEST = 20
REFERENCE_FAULT = (
    f'must be only {{"{FIELD}": "NAME"}}, a name of capitals, digits and single underscores'
)
PLAIN_SECRET = (
    f'must not be in the payload: refer to it as {{"{FIELD}": "NAME"}}, and set'
    " ORG_SECRET__<ORGANISATION>__<NAME> where the job runs"
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


# Pydantic's own union would report one error for each of the two types.
TextOrSecret = Annotated[
    str | SecretRef, WrapValidator(lambda given, _usual: text_or_reference(given))
]


def reference_in(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return None
    document = cast("Mapping[str, object]", value)
    name = document.get(FIELD)
    if len(document) > 1 or not isinstance(name, str) or len(name) > LONGEST_SECRET_NAME:
        return None
    return name if _NAME.fullmatch(name) else None


def variable_of(org_id: str, name: str) -> str:
    return f"ORG_SECRET__{org_id.upper().replace('-', '_')}__{name}"


def secrets_of(value: object, org_id: str, environment: Mapping[str, str]) -> dict[str, str]:
    """By name, the secrets that a JSON value refers to. Raises InvalidInputError, which names the variable that
    is missing."""
    found: dict[str, str] = {}
    left = [value]
    while left:
        one = left.pop()
        name = reference_in(one)
        if name is None:
            left.extend(inner for _, inner in _items(one))
            continue
        variable = variable_of(org_id, name)
        if not environment.get(variable):
            raise InvalidInputError(
                f"The secret {name} is not known here: set the environment variable {variable}."
            )
        found[name] = environment[variable]
    return found


def with_secrets(value: object, secrets: Mapping[str, str]) -> object:
    name = reference_in(value)
    if name is not None:
        return secrets[name]
    filled = [(key, with_secrets(inner, secrets)) for key, inner in _items(value)]
    if isinstance(value, Mapping):
        return dict(filled)
    return [inner for _, inner in filled] if isinstance(value, list | tuple) else value


def _items(value: object) -> Iterable[tuple[str, object]]:
    """The entries of a JSON object or list, by key or index."""
    if isinstance(value, Mapping):
        return [(str(key), inner) for key, inner in cast("Mapping[object, object]", value).items()]
    if isinstance(value, list | tuple):
        return [(str(number), inner) for number, inner in enumerate(cast("list[object]", value))]
    return ()


def texts_in(value: object) -> Iterator[tuple[str, bool]]:
    """Every text in a JSON value, and whether it is a key."""
    if isinstance(value, str):
        yield value, False
    for key, inner in _items(value):
        if isinstance(value, Mapping):
            yield key, True
        yield from texts_in(inner)


# An "account key" is a secret; an "issue key" or a "sort key" is not.
_SECRET_KEYS = frozenset(
    {
        "account", "admin", "app", "application", "client", "consumer", "function", "functions", "genie", "hook",
        "ingest", "ingestion", "integration", "licence", "license", "master", "routing", "service", "shared", "storage",
        "subscription", "user", "webhook", "write",
    }
)  # fmt: skip
_ENDINGS = tuple(f"{word}key" for word in _SECRET_KEYS)
# These words mean a secret only in a header or a query.
_SENT_WORDS = frozenset({"auth", "key", "session", "sid", "sig"})
_PLAIN_KEYS = frozenset({"cache", "group", "order", "sort"})
_SCHEME = re.compile(r"(?i)\s*(?:basic|bearer|digest|hmac|negotiate|token|[a-z]*[_-]?key)\s+\S")
# A scheme's name may start a sentence; a credential is a single word after it.
_BASIC = re.compile(r"(?i)\s*basic\s+([a-z0-9+/_-]{4,}={0,2})\s*")
_BEARER = re.compile(r"(?i)\s*bearer\s+[\w.~+/=-]{6,}\s*")
_KEYED = re.compile(
    r"(?i)\s*(?:digest|hmac|negotiate|token|[a-z]*[_-]?key)\s+(?=\S*\d)[\w.~+/=:-]{8,}\s*"
)
_NAMES, _VALUES = ("name", "key", "header"), ("value", "val")


def names_secret(name: str) -> bool:
    """Whether a field of this name holds a secret, anywhere in a payload."""
    words = words_of(name)
    joined = "".join(words)
    return is_secret(name) or "sig" in words or joined == "session" or joined.endswith(_ENDINGS)


def is_secret_when_sent(name: str) -> bool:
    """Whether a header or a query parameter of this name holds a secret."""
    words = set(words_of(name))
    sent = words & _SENT_WORDS
    is_key = bool(sent - {"key"} or (sent and not words & _PLAIN_KEYS))
    return is_sensitive(name) or names_secret(name) or is_key


def is_scheme(text: str) -> bool:
    """Whether a header's value begins like credentials."""
    return _SCHEME.match(text) is not None


def looks_secret(text: str) -> bool:
    """Whether the text is a credential, independent of its field name."""
    basic = _BASIC.fullmatch(text)
    if basic is not None:
        return _holds_password(basic[1])
    return bool(_BEARER.fullmatch(text) or _KEYED.fullmatch(text) or holds_token(text))


def _holds_password(encoded: str) -> bool:
    """Whether the text decodes to a user and a password with a colon between them."""
    bare = encoded.rstrip("=")
    try:
        return b":" in b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_")
    except Base64Error:
        return False


def named_by_sibling(document: Mapping[str, object]) -> tuple[str, str] | None:
    """In {"name": "Authorization", "value": ...}: the field with the secret, and its name."""
    fields = {name.lower(): name for name in document if len(name) <= len("header")}
    named = next((document[fields[name]] for name in _NAMES if name in fields), None)
    field = next((fields[name] for name in _VALUES if name in fields), None)
    if field is None or not isinstance(named, str) or not names_secret(named):
        return None
    return field, named[:100]


PayloadFault = tuple[str, str]


@dataclass(frozen=True)
class _Node:
    """A value in a payload. Everything below a sensitive name is sensitive."""

    path: str
    name: str
    value: object
    is_sensitive: bool
    depth: int


def payload_faults(payload: Mapping[str, object]) -> list[PayloadFault]:
    """Where and why the payload is refused, in order. No message quotes a value."""
    faults: list[PayloadFault] = []
    left = [_Node("", "", payload, is_sensitive=False, depth=0)]
    while left:
        node = left.pop()
        if reference_in(node.value) is not None:
            continue
        fault = _fault(node)
        if fault is not None:
            faults.append((node.path, fault))
        else:
            left.extend(reversed(list(_inside(node))))
    return faults


def _fault(node: _Node) -> str | None:
    value = node.value
    if node.depth > DEEPEST:
        return f"must not be nested more than {DEEPEST} deep"
    if len(node.name) > LONGEST_PAYLOAD_KEY:
        return f"has a name of more than {LONGEST_PAYLOAD_KEY} characters"
    if isinstance(value, Mapping) and FIELD in value:
        return REFERENCE_FAULT
    if _is_secret(node):
        return PLAIN_SECRET
    if isinstance(value, float) and not isfinite(value):
        return "must be a finite number"
    return text_fault(node.name) or (text_fault(value) if isinstance(value, str) else None)


def _is_secret(node: _Node) -> bool:
    """Empty values, flags and counters are not secrets."""
    value = node.value
    if value is None or value == "" or isinstance(value, bool | Mapping | list | tuple):
        return False
    if isinstance(value, str) and (looks_secret(value) or names_secret(node.name)):
        return True
    return node.is_sensitive and not (isinstance(value, int | float) and is_counter(node.name))


def _inside(node: _Node) -> Iterator[_Node]:
    items = _items(node.value)
    is_object = isinstance(node.value, Mapping)
    field, named = (named_by_sibling(dict(items)) if is_object else None) or (None, "")
    for key, value in items:
        name = key if is_object else node.name
        if key == field:
            name = named
        step = key[:LONGEST_PAYLOAD_KEY]
        path = f"{node.path}.{step}" if node.path else step
        is_node_sensitive = node.is_sensitive or is_sensitive(name)
        yield _Node(path, name, value, is_node_sensitive, node.depth + 1)


class AutomationRunPayload(JsonModel):
    schedule_id: KnownId = Field(description="The automation schedule to run.")


class PricingRulePayload(JsonModel):
    rule_id: KnownId = Field(description="The pricing rule to run.")
    force: StrictBool = Field(
        default=False, description="Whether to skip the cooldown of the rule after its last run."
    )


_COMPANY = r"^([0-9]{9}|[0-9]{14})$"


class CompanyEnrichmentPayload(JsonModel):
    company: Annotated[
        str,
        matching(_COMPANY, "must be the nine digits of a SIREN or the fourteen of a SIRET"),
        Field(
            description="The SIREN or SIRET, digits only.",
            json_schema_extra={"pattern": _COMPANY},
        ),
    ]
    force: StrictBool = Field(
        default=False, description="Whether to refresh the company even if its data is fresh."
    )


LONGEST_URL = 2000
LONGEST_VALUE = 4000
MOST_HEADERS = 50
ORIGINS_SETTING = "ORG_JOBS_HTTPS_ALLOWED_ORIGINS"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# These belong to the connection, or identify the attempts of one run.
_RESERVED_HEADERS = frozenset(
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


def _address_fault(url: str | SecretRef) -> str | None:
    """Why the form of the address is invalid."""
    if isinstance(url, SecretRef):
        return None
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
        return f"must not contain the parameter {secret[:100]!r}: send it in a header, or use a reference "
        "for the whole url"
    return None


def _header_fault(name: str, value: str | SecretRef) -> str | None:
    if not _HEADER_NAME.fullmatch(name):
        return "is not a name of a header"
    if name.lower() in _RESERVED_HEADERS:
        return "is set by the client"
    if isinstance(value, SecretRef):
        return None
    if value and (is_secret_when_sent(name) or is_scheme(value)):
        return PLAIN_SECRET
    if len(value) > LONGEST_VALUE or not (value.isascii() and value.isprintable()):
        return f"must be at most {LONGEST_VALUE} plain characters on one line"
    return None


class HttpsCallPayload(JsonModel):
    url: Annotated[TextOrSecret, refused_by(_address_fault)] = Field(
        description="An https:// address, or a reference to a secret that contains the whole address."
    )
    method: HttpMethod = HttpMethod.POST
    headers: dict[str, TextOrSecret] = Field(default={}, max_length=MOST_HEADERS)
    body: JsonValue = Field(
        default=None, description="Sent as JSON; references in it are replaced."
    )
    expect_status: tuple[Annotated[StrictInt, Field(ge=200, le=599)], ...] = Field(
        default=(),
        max_length=50,
        description="The statuses that count as success. Default: 200 to 299.",
    )
    timeout_seconds: StrictInt = Field(default=30, ge=1, le=120)

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, given: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        names = [name.lower() for name in given]
        faults: list[str] = []
        for name, value in given.items():
            is_repeated = names.count(name.lower()) > 1
            fault = _header_fault(name, value) or ("is given twice" if is_repeated else None)
            if fault is not None:
                faults.append(f"{name[:100]!r} {fault}")
        if faults:
            raise ValueError("; ".join(faults))
        return given

    @model_validator(mode="after")
    def _get_carries_nothing(self) -> "HttpsCallPayload":
        if self.method is HttpMethod.GET and self.body is not None:
            raise ValueError("A GET has no body.")
        return self

    def check_address(self, allowed_origins: Collection[str]) -> None:
        """Raises InvalidInputError if the address is refused without a lookup of its host name. The lookup
        happens at the call."""
        if isinstance(self.url, str):
            check_https_url(self.url, allowed_origins, name="url", setting=ORIGINS_SETTING)

    def is_success(self, status: int) -> bool:
        return status in self.expect_status if self.expect_status else 200 <= status < 300
