"""Values that people write as JSON: what no database can keep is refused, and every fault is told
in plain words."""

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, HttpUrl, StrictBool

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, answerable, is_deeper, parse, text_fault
from automation_pipeline_tests.tables import every_case

NUL, HALF = "must not hold the character NUL", "must not hold half a character"


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Inner(JsonModel):
    name: str = ""


class Outer(JsonModel):
    name: Annotated[str, Field(min_length=1, max_length=3)] = "a"
    long_name: Annotated[str, Field(min_length=2, max_length=9)] = "ab"
    names: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    some: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = ("a",)
    anything: object = None
    inner: Inner | None = None
    count: Annotated[int, Field(ge=1, le=5)] = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    flag: bool = False
    strict: StrictBool = False
    colour: Colour = Colour.RED
    kind: Literal["one", "two"] = "one"
    address: HttpUrl | None = None


def faults(**fields: object) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidInputError) as refused:
        parse(Outer, fields, "No value.")
    return refused.value.fields


@every_case(("text", "fault"), [("a\0b", NUL), ("\ud800", HALF), ("a\udfff", HALF)])
def test_what_no_database_can_keep_is_refused_wherever_it_stands(text: str, fault: str) -> None:
    assert faults(name=text) == (("name", fault),)
    assert faults(names=["a", text]) == (("names", fault),)
    assert faults(table=[["a"], ["b", text]]) == (("table", fault),)
    assert faults(anything=[[[text]]]) == (("anything", fault),)
    assert faults(inner={"name": text}) == (("inner.name", fault),)


@every_case(
    ("name", "shown", "fault"),
    [("a\ud800", "a\\ud800", HALF), ("\udfff", "\\udfff", HALF), ("a\0", "a\0", NUL)],
)
def test_a_field_whose_name_cannot_be_kept_is_named_as_it_can_be_told_beside_all_others(
    name: str, shown: str, fault: str
) -> None:
    assert faults(**{name: 1}) == ((shown, fault),)
    assert faults(**{name: 1, "count": 6}) == ((shown, fault), ("count", "must be at most 5"))


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_answered_and_whole_characters_are_answered_as_they_are(text: str) -> None:
    assert answerable(text).encode().decode() == answerable(text)
    if text_fault(text) is None:
        assert answerable(text) == text


@given(
    st.recursive(
        st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
    )
)
def test_the_depth_of_a_document_is_that_of_its_deepest_part(document: object) -> None:
    def depth(one: object) -> int:
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        return max((depth(inner) + 1 for inner in inside), default=0)

    for most in range(8):
        assert is_deeper(document, most) == (depth(document) > most)


@every_case("text", ["", "é", "\U0001f441", "\ue000", "\ud7ff", "\uffff"])
def test_whole_characters_are_kept(text: str) -> None:
    assert parse(Outer, {"names": [text], "table": [[text]]}, "No value.").table == ((text,),)


@every_case(
    ("some", "told"),
    [
        ([7], (("some.0", "must be a text"),)),
        ([], (("some", "must have at least 1 entry"),)),
        (["a", 7], (("some.1", "must be a text"),)),
    ],
)
def test_a_list_is_too_short_only_where_no_entry_is_at_fault(
    some: list[object], told: object
) -> None:
    assert faults(some=some) == told


@given(st.text(st.characters(exclude_categories=())))
def test_a_text_without_fault_is_utf_8_without_nul(text: str) -> None:
    try:
        storable = b"\0" not in text.encode()
    except UnicodeEncodeError:
        storable = False
    assert (text_fault(text) is None) == storable


def test_a_list_is_looked_through_however_deep_it_is() -> None:
    deep: list[object] = ["\0"]
    for _ in range(100_000):
        deep = [deep]
    assert faults(anything=deep) == (("anything", NUL),)


@every_case(
    ("field", "value", "words"),
    [
        ("name", "", "must have at least 1 character"),
        ("name", "abcd", "must have at most 3 characters"),
        ("longName", "a", "must have at least 2 characters"),
        ("name", 7, "must be a text"),
        ("names", "a", "must be a list"),
        ("some", [], "must have at least 1 entry"),
        ("some", ["a", "b", "c"], "must have at most 2 entries"),
        ("inner", 7, "must be an object"),
        ("count", 0, "must be at least 1"),
        ("count", 6, "must be at most 5"),
        ("count", "many", "must be a whole number"),
        ("count", 2.5, "must be a whole number"),
        ("count", None, "must be a whole number"),
        ("count", "9" * 5000, "must be a whole number of fewer digits"),
        ("share", 0, "must be more than 0.0"),
        ("share", 1, "must be less than 1.0"),
        ("share", "half", "must be a number"),
        ("flag", "perhaps", "must be true or false"),
        ("strict", "true", "must be true or false"),
        ("colour", "blue", "must be 'red' or 'green'"),
        ("kind", "three", "must be 'one' or 'two'"),
        ("address", "no address", "must be a web address"),
        ("address", 7, "must be a web address"),
        ("address", "ftp://a.test", "must be an address that begins with 'http' or 'https'"),
        ("nmae", "a", "is not a known field"),
    ],
)
def test_a_fault_is_told_in_plain_words(field: str, value: object, words: str) -> None:
    assert faults(**{field: value}) == ((field, words),)
