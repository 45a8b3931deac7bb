"""Tokens: long, random, told apart by their beginning, recognised by their hash alone."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.access.models import (
    SECRET_BYTES,
    format_token,
    is_same_hash,
    is_token,
    token_hash,
    token_prefix,
)
from automation_pipeline_tests.tables import every_case

secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


@given(secrets, secrets)
def test_every_secret_makes_another_token_and_another_hash(one: bytes, other: bytes) -> None:
    tokens = format_token(one), format_token(other)
    assert all(map(is_token, tokens))
    assert (tokens[0] == tokens[1]) is (one == other)
    assert is_same_hash(*map(token_hash, tokens)) is (one == other)


@given(secrets)
def test_the_hash_is_sha_256_and_shows_nothing_of_the_token(secret: bytes) -> None:
    token = format_token(secret)
    assert token_hash(token) == hashlib.sha256(token.encode()).hexdigest()
    assert token[4:] not in token_hash(token)


def test_what_people_see_leaves_more_than_200_bits_to_guess() -> None:
    token = format_token(bytes(range(SECRET_BYTES)))
    assert token.startswith(token_prefix(token))
    assert token_prefix(token).startswith("apt_")
    assert (len(token) - len(token_prefix(token))) * 6 > 200


@every_case(
    "text",
    [
        "", "apt_", "apt_short", "x" * 47, "APT_" + "a" * 43, "apt_" + "a" * 42, "apt_" + "a" * 44,
        "apt_" + "a" * 42 + "é", "apt_" + "a" * 42 + "\n", "apt_" + "a" * 43 + "\n", " apt_" + "a" * 43,
        "apt_" + "a" * 42 + "\ud800", "apt_" + "a" * 42 + "\0",
    ],
)  # fmt: skip
def test_other_texts_are_no_tokens(text: str) -> None:
    assert not is_token(text)


@given(st.text())
def test_no_text_breaks_the_question(text: str) -> None:
    assert is_token(text) is False
