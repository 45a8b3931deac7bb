"""What is recognised inside a text, what is left, and that no text is looked through again and
again."""

import time

from automation_pipeline.core.masking import hide
from automation_pipeline_tests.tables import every_case


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
def test_secrets_after_their_names_and_by_their_shapes_are_hidden(text: str, shown: str) -> None:
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
def test_counts_times_and_ids_are_left(text: str) -> None:
    assert hide(text) == text


@every_case(
    "unit",
    ["a:", "http://", "http://a?", "token=", "token=1 ", "a@", "a@a.", "0", "06 ", "bearer ", "cookie", "cookie:",
     "sk-", "eyJ.", "FR76 ", "4111 ", "a.", "mot de passe", 'password:"', '\\"', "a='", "://", "api key "],
)  # fmt: skip
def test_the_work_grows_as_the_text_does(unit: str) -> None:
    """Sixteen times the text is a good sixteen times the work; it would be 256 times if each part
    saw all the rest."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        spans: list[float] = []
        for _ in range(3):
            begun = time.process_time()
            hide(text)
            spans.append(time.process_time() - begun)
        return min(spans)

    assert seconds(64_000) < 100 * max(seconds(4_000), 0.0005)
