"""A token as somebody asks for it, in JSON or at the command line."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StrictInt, ValidationInfo, field_validator

from automation_pipeline.access.domain.permissions import (
    OF_ORGANISATIONS,
    beyond_organisations,
    plain_words,
    word_fault,
)
from automation_pipeline.core.access import Scope
from automation_pipeline.core.json_model import JsonModel, parse

COMPLAINT = "Invalid token"
LONGEST_LIFE_DAYS = 3650


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
    fault = word_fault(word)
    if fault is not None:
        raise ValueError(fault)
    return word


def _some(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        raise ValueError("must not be empty")
    return words


def _once(entries: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entries))


_Groupe = Annotated[str, _text(200)]


class TokenWish(JsonModel):
    """`groupes` belong to the scope GROUP, `crm_user_id` to SELF: elsewhere they would seem to say something. A token
    of an organisation reaches all of that, and may do what is its own only."""

    name: Annotated[str, _text(200)] = Field(description="What people will know the token by.")
    org_id: Annotated[str, _text(100)] | None = Field(
        default=None,
        description="The organisation that it belongs to: of that it reaches all (the scope is ALL), and nothing "
        "beyond. It may have `org-jobs`, `org-jobs.agents` and `enrichment`.",
    )
    permissions: Annotated[
        tuple[Annotated[str, AfterValidator(_permission)], ...],
        Field(max_length=100),
        AfterValidator(_some),
        AfterValidator(plain_words),
    ] = Field(description="Such as `automation.write`, which includes reading, `fiches` to read, or `*`.")
    scope: Annotated[
        Scope,
        BeforeValidator(_scope, json_schema_input_type=str),
        PlainSerializer(lambda scope: scope.name, return_type=str),
    ] = Field(description="Which fiches it reaches: ALL, those of its groups (GROUP) or of one CRM user (SELF).")
    groupes: Annotated[tuple[_Groupe, ...], Field(max_length=500), AfterValidator(_once)] = Field(
        default=(), description="The groups of the scope GROUP."
    )
    crm_user_id: Annotated[str, _text(100)] | None = Field(default=None, description="The CRM user of the scope SELF.")
    expires_in_days: Annotated[StrictInt, Field(ge=1, le=LONGEST_LIFE_DAYS)] | None = Field(
        default=None, description="Without it the token is good until it is revoked."
    )

    @field_validator("permissions")
    @classmethod
    def _are_those_of_organisations(cls, words: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        beyond = () if info.data.get("org_id") is None else beyond_organisations(words)
        if beyond:
            *others, last = sorted(OF_ORGANISATIONS)
            allowed = f"{', '.join(others)} and {last}"
            raise ValueError(f"of a token of an organisation are {allowed}, not {', '.join(beyond)}")
        return words

    @field_validator("scope")
    @classmethod
    def _is_all_of_the_organisation(cls, scope: Scope, info: ValidationInfo) -> Scope:
        if info.data.get("org_id") is not None and scope is not Scope.ALL:
            raise ValueError("must be ALL for a token of an organisation: it reaches all of that, and nothing beyond")
        return scope

    @field_validator("groupes")
    @classmethod
    def _are_those_of_the_scope(cls, groupes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _check("GROUP", info, is_given=bool(groupes))
        return groupes

    @field_validator("crm_user_id")
    @classmethod
    def _is_that_of_the_scope(cls, crm_user_id: str | None, info: ValidationInfo) -> str | None:
        _check("SELF", info, is_given=crm_user_id is not None)
        return crm_user_id


def _check(needed_by: str, info: ValidationInfo, *, is_given: bool) -> None:
    scope = info.data.get("scope")
    if isinstance(scope, Scope) and is_given != (scope.name == needed_by):
        raise ValueError(f"goes with the scope {needed_by} only" if is_given else f"is needed by the scope {needed_by}")


def parse_wish(given: Mapping[str, object]) -> TokenWish:
    """InvalidInputError names every field at fault."""
    # What is left out is looked at too, which its default would not be.
    return parse(TokenWish, {"groupes": [], "crmUserId": None, **given}, COMPLAINT)
