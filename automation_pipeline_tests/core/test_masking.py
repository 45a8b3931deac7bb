"""Masking of secrets and personal data, and escaping of markup and control characters."""

import io
import json
import logging
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from automation_pipeline.core import masking
from automation_pipeline.core.logs import configure_logs, log
from automation_pipeline.core.masking import (
    CUT,
    CUT_KEYS,
    MASK,
    MOST_TEXT,
    MOST_VALUES,
    csv_cell,
    hide,
    markdown_cell,
    masked,
    masked_document,
    masked_text,
    visible,
)
from automation_pipeline.orchestration.ops import table
from automation_pipeline_tests.cases import every_case

SECRET_KEYS = [
    "authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "token", "access_token", "refreshToken", "api_key",
    "apiKey", "X-API-Key", "xi-api-key", "externalApiKey", "webhookSecret", "client_secret", "smtp_pass", "password",
    "PASSWORD", "signing_key", "private-key", "API_AUTH_TOKENS", "jwt", "X-Webhook-Signature", "credentials",
    "mdp", "session_id", "sessionId", "auth_key", "mot_de_passe",
]  # fmt: skip
PERSONAL_KEYS = [
    "email", "prospectEmail", "notify_emails", "tel", "prospect_tel", "telephone", "phone_number", "prenom",
    "prospectPrenom", "nom", "prospect_nom", "prospect_name", "client_name", "adresse", "date_naissance", "mail",
    "nir", "numero_secu", "num_secu", "rib", "carte",
]  # fmt: skip
COUNTERS = [
    "tokens", "total_tokens", "tokens_used", "totalTokens", "prompt_tokens", "completion_tokens", "max_tokens",
    "token_count", "tokenUsage", "tokens_per_minute", "emails_sent",
]  # fmt: skip
PLAIN_KEYS = [
    "name", "schedule_name", "agence_nom", "groupe", "request_key", "run_key", "key", "keys", "count", "ficheId",
    "message", "token_type", "mail_devis", "tokenizer", "secretary", "telling", "nominal", "passes",
]  # fmt: skip


@every_case("key", SECRET_KEYS + PERSONAL_KEYS)
@every_case("value", ["hush", 612345678, ["hush"], {"any": "hush"}, 1.5])
def test_any_value_under_a_sensitive_key_is_masked(key: str, value: object) -> None:
    if key == "API_AUTH_TOKENS" and isinstance(value, int | float):
        assert masked({key: value}) == {key: value}, "the number of tokens is not secret"
        return
    assert masked([{key: value}]) == [{key: MASK}]


@every_case("key", SECRET_KEYS + PERSONAL_KEYS)
@every_case("value", [None, True, False, ""])
def test_empty_and_boolean_values_of_sensitive_keys_are_not_masked(key: str, value: object) -> None:
    assert masked({key: value}) == {key: value}


@every_case("key", COUNTERS)
@every_case("value", [0, 1200, 0.5, {"cached": 12, "audio": 0}])
def test_counters_are_not_masked(key: str, value: object) -> None:
    assert masked({key: value}) == {key: value}


@every_case("key", ["tokens", "auth_tokens", "token_count"])
def test_non_numeric_values_under_counter_names_are_masked(key: str) -> None:
    assert masked({key: "hush"}) == {key: MASK}
    assert masked({key: {"first": "hush"}}) == {key: MASK}


@every_case("key", PLAIN_KEYS)
def test_other_keys_are_not_masked(key: str) -> None:
    assert masked({key: "seen", "n": 3}) == {key: "seen", "n": 3}


@every_case(
    ("text", "shown"),
    [
        ("Bearer abc.def-1|2", "Bearer [masked]"),
        ("sent with bearer abc, twice", "sent with bearer [masked], twice"),
        ("Authorization: Basic YW5uYTpwdw==", "Authorization: [masked]"),
        ("Cookie: a=1; b=2\nAccept: */*", "Cookie: [masked]\nAccept: */*"),
        ('{"authorization": "Basic x", "n": 1}', '{"authorization": "[masked]", "n": 1}'),
        ("xi-api-key: sk_1", "xi-api-key: [masked]"),
        ("password=a:b=c", "password=[masked]"),
        ("password='two words' then", "password='[masked]' then"),
        ('"apiKey": "sk-1"', '"apiKey": "[masked]"'),
        ("error:token=abc", "error:token=[masked]"),
        ("/hook?key=1&day=2&sig=3", "/hook?key=[masked]&day=2&sig=[masked]"),
        ("https://host.test/a?X-Amz-Signature=1&b=2#end", "https://host.test/a?[masked]#end"),
        ("see https://host.test/a?b=2.", "see https://host.test/a?[masked]"),
        ("https://anna:s3cret@host.test/a", "https://[masked]@host.test/a"),
        ("postgresql+psycopg://anna:s3@cret@db/work", "postgresql+psycopg://[masked]@db/work"),
        ("redis://:pw@cache:6379/0", "redis://[masked]@cache:6379/0"),
        ("to anna.b+c@mail.example.fr, now", "to [masked], now"),
        ("call 0612345678", "call [masked]"),
        ("call 06 12 34 56 78 or 06.12.34.56.78.", "call [masked] or [masked]."),
        ("call +33 (0)6 12 34 56 78!", "call [masked]!"),
        ("call 0033612345678", "call [masked]"),
        ("prospectNom=Dupont", "prospectNom=[masked]"),
        ("Cookie: eyJhbGciOiJIUzI1NiJ9; session=hush", "Cookie: [masked]"),
        ("it was apt_0123456789abcdefghij-_X.", "it was [masked]."),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-x then", "got [masked] then"),
        ("key sk-proj-0123456789abcdef, sk_0123456789abcdef", "key [masked], [masked]"),
        (r'{"webhook_secret":"x\"y","n":1}', '{"webhook_secret":"[masked]","n":1}'),
        (r'{"webhook_secret":"x\\","n":"seen"}', '{"webhook_secret":"[masked]","n":"seen"}'),
        (r"{'webhook_secret': 'x\'y', 'n': 1}", "{'webhook_secret': '[masked]', 'n': 1}"),
        (r'{"cookie": "a=\"b\"; c=d", "n": 1}', '{"cookie": "[masked]", "n": 1}'),
        (r'"{\"api_key\":\"abc\",\"n\":1}"', r'"{\"api_key\":\"[masked]",\"n\":1}"'),
        (r'"{\"api_key\":\"a\\\"bc\",\"n\":1}"', r'"{\"api_key\":\"[masked]",\"n\":1}"'),
    ],
)
def test_secrets_and_personal_data_inside_a_text_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


@every_case(
    "text",
    [
        "",
        "Fiche 1900417 failed: the CRM answered 503 for fiche 1900417.",
        "total_tokens=1200 prompt_tokens: 900",
        "2026-05-04T10:00:00.123456+02:00",
        "01.02.2026 10:00 and 01/02/2026",
        "run 3fa85f64-5717-4562-b3fc-2c963f66afa6",
        "https://host.test:8080/a/b#c",
        "10 recordings, 0.0612345678 s, -0612345678",
        "1777889900123",
        "audit-1900417-11-1777889900123",
        "key=value and sig: none",
        "the bearer",
        "the token that begins with apt_01234 and the task-force-of-the-risk-sk-1",
    ],
)
def test_other_texts_are_not_masked(text: str) -> None:
    assert masked(text) == text


class Colour(StrEnum):
    RED = "red"


class Angle(Enum):
    RIGHT = 90


class BrokenText:
    def __str__(self) -> str:
        raise RuntimeError("no")


class BrokenMapping(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise KeyError(key)

    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 1


@every_case(
    ("value", "shown"),
    [
        (datetime(2026, 5, 4, 10, tzinfo=UTC), "2026-05-04T10:00:00+00:00"),
        (date(2026, 5, 4), "2026-05-04"),
        (Decimal("1.50"), "1.50"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (10**400, CUT),
        (Colour.RED, "red"),
        (Angle.RIGHT, 90),
        (ValueError("token=abc"), "ValueError: token=[masked]"),
        (SecretStr("hush"), "**********"),
        (b"hush", "[bytes]"),
        (len, "[builtin_function_or_method]"),
        ((1, "a"), [1, "a"]),
        ({"a"}, ["a"]),
        (BrokenText(), "[BrokenText]"),
        (BrokenMapping(), "[BrokenMapping]"),
        ({1: "a", None: "b", "anna@host.test": 1}, {"1": "a", "None": "b", MASK: 1}),
    ],
)
def test_every_value_is_masked_as_json(value: object, shown: object) -> None:
    assert masked(value) == shown
    json.dumps(masked(value), allow_nan=False)


def test_a_masked_document_is_always_a_document() -> None:
    assert masked_document(BrokenMapping()) == {}
    assert masked_document({"a": {1, 2} and [1], "token": "x"}) == {"a": [1], "token": MASK}


def test_a_circular_document_is_cut() -> None:
    ring: dict[str, object] = {"n": 1}
    ring["again"] = ring
    assert masked(ring) == {"n": 1, "again": CUT}


def test_depth_and_length_are_limited() -> None:
    deep: object = "bottom"
    for _ in range(20):
        deep = [deep]
    assert masked(deep) == [[[[[[CUT]]]]]]
    assert masked("x" * 5000) == "x" * 1999 + "…"
    assert masked(list(range(51))) == [*range(49), CUT]
    assert masked(list(range(50))) == [*range(50)]
    many = masked({f"k{number}": number for number in range(300)})
    assert isinstance(many, dict)
    assert (len(many), many[CUT_KEYS]) == (200, 101)


@every_case("before", range(1975, 2001))
def test_a_mask_at_the_cut_is_complete_or_omitted(before: int) -> None:
    text = masked_text("x" * before + " anna@host.test and more")
    assert len(text) <= 2000
    assert "[" not in text or MASK in text
    assert masked_text(text) == text


def test_a_document_is_limited_in_values_and_text() -> None:
    numbers = masked([[[1] * 50] * 50] * 50)
    assert json.dumps(numbers).count("1") < MOST_VALUES
    assert CUT in json.dumps(numbers)
    texts = masked({f"k{number}": ["x y " * 500] * 50 for number in range(200)})
    assert MOST_TEXT / 2 < len(json.dumps(texts)) < 2 * MOST_TEXT
    hidden = masked([{f"token{number}": "hush" for number in range(200)}] * 50)
    assert "hush" not in json.dumps(hidden)
    empty = masked(
        [*[[1] * 50] * 41, {"token": None, "tokens": {"used": 1}, "email": "anna@host.test"}]
    )
    assert isinstance(empty, list)
    assert empty[-1] == CUT
    mixed = masked(
        {
            "texts": ["x y " * 500] * 50,
            "token": None,
            "tokens": {"used": 1},
            "email": "anna@host.test",
        }
    )
    assert isinstance(mixed, dict)
    assert (mixed["token"], mixed["tokens"], mixed["email"]) == (CUT, CUT, MASK)
    for seen in (numbers, texts, hidden, empty, mixed):
        assert masked(seen) == seen


@pytest.mark.parametrize("longest", [200, 2000, 20_000])
def test_a_text_is_cut_before_it_is_scanned(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    monkeypatch.setattr(masking, "hide", lambda text: lengths.append(len(text)) or text)
    masked_text("a:" * 50_000, longest)
    assert max(lengths) <= longest + 500


def test_no_partial_secret_remains_where_a_text_is_cut() -> None:
    for before in range(2440, 2500):
        for secret in ("anna.dupont@host.test", "0612345678", "FR76 3000 6000 0112 3456 7890 189"):
            result = masked_text(
                f"{'token=' + 'x' * 700} {' y' * ((before - 707) // 2)} {secret} and {'z ' * 900}"
            )
            assert not any(half in result for half in ("anna", "0612", "FR76", "6000"))
    assert masked_text("Refused: token=" + "x" * 5000) == "Refused: token=[masked]"


def test_a_long_text_is_scanned_quickly() -> None:
    for text in (
        "a" * 200_000,
        "a@" * 100_000,
        "0" * 200_000,
        "http://" * 30_000,
        "a:" * 100_000,
        "'" * 200_000,
    ):
        masked_text(text)


secrets = st.text("ABCDEFGHJKabcdefghjk0123456789-_.~", min_size=8).map(lambda text: f"Zq{text}qZ")
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.binary(max_size=5),
    st.dates(),
)
keys = st.one_of(
    st.text(max_size=10), st.sampled_from(SECRET_KEYS + PERSONAL_KEYS + COUNTERS + PLAIN_KEYS)
)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=15,
)
MESSY = st.lists(
    st.sampled_from(
        ["Bearer ", "token=", "a@b.fr", "0612345678", "+336", "https://u:p@h/", "?a=b", '"', "'", "[masked]", "[", " ",
         "password: ", "cookie:", "=", ":", "\\", "1", "x", "\n", "…", "é", "&sig=", "total_tokens=12",
         "apt_", "eyJ", "sk-", "abcdefghijkl", 'token="', ".", "FR76", "4111 1111", " 1111 1111", "185057800608436",
         '\\"']
    ),
    max_size=25,
).map("".join)  # fmt: skip


@given(
    st.sampled_from([key for key in SECRET_KEYS if key != "API_AUTH_TOKENS"]),
    secrets,
    st.lists(st.one_of(st.none(), keys), max_size=8),
    documents,
)
def test_no_secret_under_its_key_survives_at_any_depth(
    key: str, secret: str, path: list[str | None], sibling: object
) -> None:
    planted: object = {"sibling": sibling, key: secret}
    for step in path:
        planted = [sibling, planted] if step is None else {step: planted, "sibling": sibling}
    assert secret not in json.dumps(masked(planted))


@given(secrets, MESSY, MESSY)
def test_no_secret_in_a_text_survives(secret: str, before: str, after: str) -> None:
    for result in (
        f"Bearer {secret}",
        f"https://h.test/a?k={secret}",
        f"https://u:{secret}@h.test/",
    ):
        assert secret not in masked_text(f"{before} {result} {after}")


@given(
    st.sampled_from(COUNTERS), st.one_of(st.integers(-(2**63), 2**63), st.floats(allow_nan=False))
)
def test_numbers_under_counters_are_kept(key: str, number: float) -> None:
    shown = masked({"usage": [{key: number}]})
    assert shown == {"usage": [{key: number if abs(number) != float("inf") else MASK}]}


@given(documents)
def test_masking_a_document_is_idempotent(document: object) -> None:
    once = masked(document)
    assert masked(once) == once
    json.dumps(once, allow_nan=False)


@given(MESSY, st.integers(10, 80))
def test_masking_a_text_is_idempotent(text: str, longest: int) -> None:
    once = masked_text(text, longest)
    assert masked_text(once, longest) == once
    assert len(once) <= longest


@every_case(
    ("text", "shown"),
    [
        ("mdp=hunter2", "mdp=[masked]"),
        ("mot de passe: hunter2", "mot de passe: [masked]"),
        ("Mot de passe : hunter2.", "Mot de passe : [masked]"),
        ("Invalid API key: sk-1", "Invalid API key: [masked]"),
        ("Incorrect API key provided: sk-pro***cdef", "Incorrect API key provided: [masked]"),
        ("sessionId=abc, auth_key=def", "sessionId=[masked], auth_key=[masked]"),
        ("got whsec_MfKQ9r8GKYqrTwjU+PD8/LPZIo2LaLaS== then", "got [masked] then"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln then", "got [masked] then"),
        ("it was apt_0123456789abcdefghij", "it was [masked]"),
        (r'{"password": "a\"b secret tail", "n": 1}', '{"password": "[masked]", "n": 1}'),
        ("to FR76 3000 6000 0112 3456 7890 189, now", "to [masked], now"),
        ("to FR7630006000011234567890189", "to [masked]"),
        ("to GB82 WEST 1234 5698 7654 32", "to [masked]"),
        ("nir 185057800608436", "nir [masked]"),
        ("of 1 85 05 78 006 084 36.", "of [masked]."),
        ("of 2 99 11 2A 006 084 36", "of [masked]"),
        ("paid by 4111111111111111", "paid by [masked]"),
        ("paid by 4111 1111 1111 1111 or 5500-0000-0000-0004", "paid by [masked] or [masked]"),
        ("paid by 378282246310005, 3782 822463 10005", "paid by [masked], [masked]"),
        ("paid by 4222222222222", "paid by [masked]"),
        ("paid by 30569309025904", "paid by [masked]"),
    ],
)
def test_secrets_are_hidden_by_name_and_by_shape(text: str, shown: str) -> None:
    assert hide(text) == shown
    assert hide(shown) == shown


@every_case(
    "text",
    [
        "fiches 4900417 4900418 4900419",
        "at 1777889900123 and 1777889900123456, on 20260504100000",
        "paid by 4111111111111112",
        "company 73282932000074",
        "AB12CDEF34567890 and 3FA85F64-5717-4562-B3FC-2C963F66AFA6",
        "1200 of 5000 tokens, 2900 4900 calls",
        "the key: three; monkey: none; sess: 12",
        "whsec_ and eyJ and sk- and apt_ begin secrets, FR begins a number",
    ],
)
def test_counts_times_and_ids_are_not_hidden(text: str) -> None:
    assert hide(text) == text


@every_case(
    "unit",
    ["a:", "http://", "http://a?", "token=", "token=1 ", "a@", "a@a.", "0", "06 ", "bearer ", "cookie", "cookie:",
     "sk-", "eyJ.", "FR76 ", "4111 ", "a.", "mot de passe", 'password:"', '\\"', "a='", "://", "api key "],
)  # fmt: skip
def test_the_masking_time_grows_linearly_with_the_text(unit: str) -> None:
    """Sixteen times the text takes about sixteen times as long; quadratic time would take 256 times."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        spans: list[float] = []
        for _ in range(3):
            started = time.process_time()
            hide(text)
            spans.append(time.process_time() - started)
        return min(spans)

    assert seconds(64_000) < 100 * max(seconds(4_000), 0.0005)


HOSTILE = "\x1b]0;title\x07 \x9b31m red \x9d0;x\x9c \u202eevil \u2028 line \r over \x7f"


def test_a_csv_cell_is_never_a_formula_and_numbers_are_kept() -> None:
    cases = {
        "=1+1": "'=1+1", "+33 1": "'+33 1", "-2": "'-2", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "\r=1": "'\r=1",
        "\n=1": "'\n=1", "＝1": "'＝1", " =1": "' =1", "\ufeff+1": "'\ufeff+1", "\xa0\0@1": "'\xa0\0@1",
        "\tx": "'\tx", " ": " ", "x -1": "x -1", "a=1": "a=1", "": "", "NORD": "NORD", -2: -2, 1.5: 1.5, None: None,
    }  # fmt: skip
    assert {given: csv_cell(given) for given in cases} == cases


def test_markup_in_a_markdown_cell_is_escaped() -> None:
    cases = {
        "a|b": r"a\|b", "a\\|b": r"a\\\|b", "a\nb": "a b", "[x](javascript:1)": r"\[x\](javascript:1)",
        "![x](https://e.test)": r"\!\[x\](https\://e.test)", "<img src=x>": r"\<img src=x\>", "`x`": r"\`x\`",
        "**b** _i_ ~~s~~": r"\*\*b\*\* \_i\_ \~\~s\~\~", "www.e.test": r"www\.e.test", "&lt;": r"\&lt;",
        "a@e.test": r"a\@e.test", "95.5 % (3/4)": "95.5 % (3/4)", "\x9bx": "\\\\u009bx",
    }  # fmt: skip
    values = {given: markdown_cell(given) for given in cases}
    assert {
        given: one for given, one in values.items() if one != cases[given] and "\x9b" not in given
    } == {}
    assert "\x9b" not in values["\x9bx"]
    assert table(("cause",), [("a|b",), (None,)]) == "| cause |\n|---|\n| a\\|b |\n| – |"
    assert table(("cause",), []) == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_control_characters_in_log_lines_are_escaped(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure_logs("info", form)  # type: ignore[arg-type]  # text or json
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError as error:
            log("automation_pipeline.tests").info(
                f"text {HOSTILE}", word="\x9b31m", words=HOSTILE, exc_info=error
            )
    finally:
        root = logging.getLogger()
        root.handlers = [one for one in root.handlers if type(one).__name__ != "_StandardError"]
    line = written.getvalue()
    harmful = [sign for sign in line if sign not in "\n\t" and visible(sign) != sign]
    assert harmful == []
    assert "\\u009b31m red" in line
    assert form == "text" or json.loads(line)["word"] == "\x9b31m"
