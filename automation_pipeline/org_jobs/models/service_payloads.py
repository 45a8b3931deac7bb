"""Payloads of the job types that this system runs itself."""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from automation_pipeline.core.addresses import check_https_url, check_url, origin_of
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_DIGITS, ID_SCHEMA, Id, JsonModel
from automation_pipeline.org_jobs.models.secrets import (
    PLAIN_SECRET,
    SecretRef,
    TextOrSecret,
    is_scheme,
    is_secret_when_sent,
)


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
