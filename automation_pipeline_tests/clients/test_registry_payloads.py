"""How payloads are read: what can be kept is kept as it is, everything else is refused in one
sentence."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.registries.calls import (
    LenientText,
    RegistryFormatError,
    RegistryPayload,
    has_masked_value,
    parse_answer,
    without_entries,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcd"), inner),
)


class Inner(RegistryPayload):
    name: LenientText = None


class Outer(RegistryPayload):
    name: LenientText = None
    inner: list[Inner] | None = None


def test_an_answer_comes_in_our_words_and_as_it_is() -> None:
    payload, document = parse_answer(Outer, b'{"name": 7, "more": {"x": [1]}}')
    assert (payload.name, document) == (7, {"name": 7, "more": {"x": [1]}})


def test_nul_characters_are_left_out_for_no_database_holds_them() -> None:
    assert parse_answer(Outer, b'{"name": "a\\u0000b"}')[1] == {"name": "ab"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (None, "it is larger than 1 MB, or compressed"),
        (b"", "it is not JSON"),
        (b'{"a": NaN}', "it is not JSON"),
        (b'{"a": 1e999}', "it is not JSON"),
        (b'{"a": "\\ud800"}', "it is not JSON"),
        (b"[" * 1000, "it is not JSON"),
        (b"[]", "unexpected value at its top level"),
        (b'{"name": ["s3cret"]}', "unexpected value at name"),
        (b'{"inner": [{"name": {}}]}', "unexpected value at inner.0.name"),
    ],
)
def test_what_cannot_be_kept_is_refused_without_being_shown(body: bytes | None, says: str) -> None:
    with pytest.raises(RegistryFormatError) as caught:
        parse_answer(Outer, body)
    assert str(caught.value).startswith(says)
    assert "s3cret" not in str(caught.value)


@given(st.binary(max_size=40))
def test_whatever_comes_is_read_or_refused(body: bytes) -> None:
    with suppress(RegistryFormatError):
        assert isinstance(parse_answer(Outer, body)[0], Outer)


@pytest.mark.parametrize(
    ("payload", "masks"),
    [
        (Outer(name="DANONE"), False),
        (Outer(name="[NON-DIFFUSIBLE]"), True),
        (Outer(inner=[Inner(), Inner(name="[non-diffusible]")]), True),
    ],
)
def test_a_mask_is_seen_at_any_depth(payload: Outer, masks: bool) -> None:
    assert has_masked_value(payload) is masks


@given(JSON)
def test_what_is_left_out_is_nowhere_and_all_else_is_there(value: object) -> None:
    kept = without_entries(("a", "b"), value)
    assert without_entries(("a", "b"), kept) == kept
    assert without_entries((), value) == value
    if not isinstance(value, dict | list):
        assert kept == value
