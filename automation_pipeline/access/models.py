"""Values of machine tokens: format and hash, permissions, delegation, state, and the request for a token."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictInt,
    ValidationInfo,
    field_validator,
)

from automation_pipeline.core.access import (
    Action,
    Caller,
    Grant,
    Permission,
    Reach,
    Scope,
    widest_grants,
)
from automation_pipeline.core.clock import iso
from automation_pipeline.core.json_model import JsonModel, parse

SECRET_BYTES = 32
_PREFIX = "apt_"
_TOKEN = re.compile(_PREFIX + r"[A-Za-z0-9_-]{43}")


def format_token(secret: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def token_hash(token: str) -> str:
    """A fast hash without salt is enough: a token has 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_prefix(token: str) -> str:
    """The first characters: enough to distinguish tokens, too few to use one."""
    return token[: len(_PREFIX) + 6]


# The permissions that a token of an organisation may have; the others are not limited by organisation.
ORGANISATION_PERMISSIONS = frozenset(
    {Permission.ORG_JOBS, Permission.ORG_JOBS_AGENTS, Permission.ENRICHMENT}
)

_ANY = "*"
_BASES = (_ANY, *Permission)
_ACTIONS: Mapping[str, Action] = {
    **dict.fromkeys(("read", "auth"), Action.READ),
    **dict.fromkeys(("write", "run", "rerun", "fetch", "use", "test"), Action.WRITE),
}


def permission_error(word: str) -> str | None:
    """Return why the text is not a permission, or None if it is one."""
    if _parse_permission(word) is not None:
        return None
    return (
        f"is not a permission: use {', '.join(Permission)}, alone or with .read or .write, or * for everything"
        if word.strip()
        else "must not be empty"
    )


def normalise_permissions(words: Iterable[str]) -> tuple[str, ...]:
    """Return the permissions, each once, in the form `automation.write`. Permissions that `*` or
    `*.read` includes are omitted."""
    strongest: dict[str, Action] = {}
    for base, action in filter(None, map(_parse_permission, words)):
        if action is Action.WRITE or base not in strongest:
            strongest[base] = action
    any_action = strongest.get(_ANY)
    kept = (
        f"{base}.{strongest[base]}"
        for base in _BASES
        if base in strongest and (base == _ANY or any_action not in {Action.WRITE, strongest[base]})
    )
    return tuple(_ANY if word == f"{_ANY}.{Action.WRITE}" else word for word in kept)


def grants_of(words: Iterable[str], scope: Scope) -> Mapping[Permission, Grant]:
    """Return the grants of these permissions. Unknown permissions grant nothing."""
    return widest_grants(
        (permission, Grant(scope, scope if action is Action.WRITE else None))
        for base, action in filter(None, map(_parse_permission, words))
        for permission in (Permission if base == _ANY else (Permission(base),))
    )


def not_for_organisations(words: Iterable[str]) -> tuple[str, ...]:
    """Return the permissions that a token of an organisation may not have."""
    return tuple(
        word
        for word in words
        if not grants_of([word], Scope.ALL).keys() <= ORGANISATION_PERMISSIONS
    )


def _parse_permission(word: str) -> tuple[str, Action] | None:
    text = word.strip().lower()
    if text == "all" or text.startswith("all."):
        text = _ANY + text.removeprefix("all")
    if text in _BASES:
        return text, Action.WRITE if text == _ANY else Action.READ
    base, _, suffix = text.rpartition(".")
    action = _ACTIONS.get(suffix)
    return (base, action) if base in _BASES and action is not None else None


USE_RECORD_INTERVAL = timedelta(minutes=1)
_CALLER_PREFIX = "token:"


class TokenState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, kw_only=True)
class ApiToken:
    """A stored token. With `org_id` it reaches everything of that organisation, and nothing else."""

    id: int
    name: str
    token_hash: str = field(repr=False)
    prefix: str
    permissions: tuple[str, ...]
    scope: Scope
    groupes: tuple[str, ...]
    crm_user_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    org_id: str | None = None

    def state(self, now: datetime) -> TokenState:
        if self.revoked_at is not None:
            return TokenState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return TokenState.EXPIRED if is_over else TokenState.ACTIVE

    def should_record_use(self, now: datetime) -> bool:
        return self.last_used_at is None or now - self.last_used_at >= USE_RECORD_INTERVAL

    def caller(self) -> Caller:
        """The caller. A token of an organisation has no permissions beyond those of organisations."""
        granted = grants_of(self.permissions, self.scope).items()
        return Caller(
            id=f"{_CALLER_PREFIX}{self.id}",
            grants={
                name: grant
                for name, grant in granted
                if self.org_id is None or name in ORGANISATION_PERMISSIONS
            },
            name=self.name,
            groupes=frozenset(self.groupes),
            crm_user_id=self.crm_user_id,
            org_id=self.org_id,
        )


def token_id_of(caller: Caller) -> int | None:
    """The id of the caller's token; None for a caller without a stored token."""
    return (
        int(caller.id.removeprefix(_CALLER_PREFIX))
        if caller.id.startswith(_CALLER_PREFIX)
        else None
    )


def token_document(token: ApiToken, now: datetime) -> dict[str, object]:
    """The token without its secret, which is not stored."""
    return {
        "id": str(token.id),
        "name": token.name,
        "prefix": token.prefix,
        "state": token.state(now).value,
        "permissions": list(token.permissions),
        "scope": token.scope.name,
        "groupes": list(token.groupes),
        "crmUserId": token.crm_user_id,
        "orgId": token.org_id,
        "createdAt": iso(token.created_at),
        "expiresAt": token.expires_at and iso(token.expires_at),
        "lastUsedAt": token.last_used_at and iso(token.last_used_at),
        "revokedAt": token.revoked_at and iso(token.revoked_at),
    }


INVALID_REQUEST = "Invalid token"
MAX_LIFE_DAYS = 3650


def _text(longest: int) -> AfterValidator:
    def stripped(text: str) -> str:
        bare = text.strip()
        if not bare:
            raise ValueError("must not be empty")
        if len(bare) > longest:
            raise ValueError(f"must have at most {longest} characters")
        return bare

    return AfterValidator(stripped)


def _scope(given: object) -> Scope:
    name = given.strip().upper() if isinstance(given, str) else ""
    if name not in Scope.__members__:
        raise ValueError("must be ALL, GROUP or SELF")
    return Scope[name]


def _permission(word: str) -> str:
    fault = permission_error(word)
    if fault is not None:
        raise ValueError(fault)
    return word


def _not_empty(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        raise ValueError("must not be empty")
    return words


def _unique(entries: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entries))


_Groupe = Annotated[str, _text(200)]


class TokenInput(JsonModel):
    """`groupes` requires the scope GROUP, `crm_user_id` the scope SELF. A token of an organisation
    reaches all of that organisation, and has permissions of organisations only."""

    name: Annotated[str, _text(200)] = Field(description="A name for people.")
    org_id: Annotated[str, _text(100)] | None = Field(
        default=None,
        description="The organisation of the token. The token reaches all of that organisation (the scope "
        "is ALL) and nothing else. It can have `org-jobs`, `org-jobs.agents` and `enrichment`.",
    )
    permissions: Annotated[
        tuple[Annotated[str, AfterValidator(_permission)], ...],
        Field(max_length=100),
        AfterValidator(_not_empty),
        AfterValidator(normalise_permissions),
    ] = Field(
        description="Such as `automation.write`, which includes reading, `fiches` to read, or `*`."
    )
    scope: Annotated[
        Scope,
        BeforeValidator(_scope, json_schema_input_type=str),
        PlainSerializer(lambda scope: scope.name, return_type=str),
    ] = Field(
        description="The fiches that the token can reach: ALL, those of its groups (GROUP) or of one CRM user (SELF)."
    )
    groupes: Annotated[tuple[_Groupe, ...], Field(max_length=500), AfterValidator(_unique)] = Field(
        default=(), description="The groups of the scope GROUP."
    )
    crm_user_id: Annotated[str, _text(100)] | None = Field(
        default=None, description="The CRM user of the scope SELF."
    )
    expires_in_days: Annotated[StrictInt, Field(ge=1, le=MAX_LIFE_DAYS)] | None = Field(
        default=None, description="Without it, the token is valid until it is revoked."
    )

    @field_validator("permissions")
    @classmethod
    def _check_organisation_permissions(
        cls, words: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        beyond = () if info.data.get("org_id") is None else not_for_organisations(words)
        if beyond:
            *others, last = sorted(ORGANISATION_PERMISSIONS)
            raise ValueError(
                f"must be {', '.join(others)} or {last} for a token of an organisation, not {', '.join(beyond)}"
            )
        return words

    @field_validator("scope")
    @classmethod
    def _check_organisation_scope(cls, scope: Scope, info: ValidationInfo) -> Scope:
        if info.data.get("org_id") is not None and scope is not Scope.ALL:
            raise ValueError(
                "must be ALL for a token of an organisation, which reaches all of that organisation and nothing else"
            )
        return scope

    @field_validator("groupes")
    @classmethod
    def _check_groupes(cls, groupes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _check_scope_field("GROUP", info, is_given=bool(groupes))
        return groupes

    @field_validator("crm_user_id")
    @classmethod
    def _check_crm_user_id(cls, crm_user_id: str | None, info: ValidationInfo) -> str | None:
        _check_scope_field("SELF", info, is_given=crm_user_id is not None)
        return crm_user_id


def _check_scope_field(needed_by: str, info: ValidationInfo, *, is_given: bool) -> None:
    scope = info.data.get("scope")
    if isinstance(scope, Scope) and is_given != (scope.name == needed_by):
        raise ValueError(
            f"goes with the scope {needed_by} only"
            if is_given
            else f"is needed by the scope {needed_by}"
        )


def parse_token_request(given: Mapping[str, object]) -> TokenInput:
    """Parse a request. Raises InvalidInputError with one error per invalid field."""
    # Pydantic does not validate defaults, so fields that depend on the scope are always passed.
    return parse(TokenInput, {"groupes": [], "crmUserId": None, **given}, INVALID_REQUEST)


TokenOrRequest = TokenInput | ApiToken


def excess_grants(request: TokenOrRequest, issuer: Caller) -> tuple[tuple[str, str], ...]:
    """Return the fields that exceed the issuer's permissions, scope or organisation, with the reason."""
    if issuer.org_id is not None and request.org_id != issuer.org_id:
        return (("orgId", f"must be '{issuer.org_id}', the organisation that you belong to"),)
    requested = [
        (f"{permission}.{action}", issuer.reach(permission, action))
        for permission, grant in grants_of(request.permissions, request.scope).items()
        for action in Action
        if grant.of(action)
    ]
    missing = [name for name, reach in requested if reach is None]
    too_wide = [name for name, reach in requested if reach and not _is_within(request, reach)]
    faults = (
        ("permissions", "you do not have yourself", missing),
        ("scope", "exceeds your own scope for", too_wide),
    )
    return tuple((field, f"{why}: {', '.join(names)}") for field, why, names in faults if names)


def _is_within(request: TokenOrRequest, reach: Reach) -> bool:
    if reach.is_whole:
        return True
    if request.scope is not reach.scope:
        return False
    if request.scope is Scope.GROUP:
        return set(request.groupes) <= reach.groupes
    return request.crm_user_id == reach.crm_user_id
