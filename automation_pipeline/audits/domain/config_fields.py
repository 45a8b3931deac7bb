"""What the texts and lists of an audit configuration may be. Texts are stripped before they are looked at."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

_Entry = TypeVar("_Entry")


def _distinct(points: tuple[str, ...]) -> tuple[str, ...]:
    if len({" ".join(point.split()) for point in points}) < len(points):
        raise ValueError("must be unique within the step")
    return points


def _filled(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))


def _none_is_empty(given: object) -> object:
    return () if given is None else given


def _blank_is_none(text: str | None) -> str | None:
    return text or None


def some(entries: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
    if not entries:
        raise ValueError("must not be empty")
    return entries


def _at_most(longest: int) -> AfterValidator:
    def stripped(text: str) -> str:
        bare = text.strip()
        if len(bare) > longest:
            raise ValueError(f"must have at most {longest} characters")
        return bare

    return AfterValidator(stripped)


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


_NotEmpty = AfterValidator(_not_empty)
_BlankIsNone = AfterValidator(_blank_is_none)

Name = Annotated[str, _at_most(200), _NotEmpty]
Prompt = Annotated[str, _at_most(20_000), _NotEmpty]
Point = Annotated[str, _at_most(1_000), _NotEmpty]
Keyword = Annotated[str, _at_most(200)]
Description = Annotated[Annotated[str, _at_most(5_000)] | None, _BlankIsNone]
SystemPrompt = Annotated[Annotated[str, _at_most(50_000)] | None, _BlankIsNone]
Author = Annotated[Annotated[str, _at_most(200)] | None, _BlankIsNone]
Points = Annotated[tuple[Point, ...], Field(max_length=100), AfterValidator(some), AfterValidator(_distinct)]
Keywords = Annotated[
    tuple[Keyword, ...], Field(max_length=200), AfterValidator(_filled), BeforeValidator(_none_is_empty)
]
