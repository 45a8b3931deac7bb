"""Refusals: whatever a caller has written, it can be told what is wrong with it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.api.errors import refusal
from automation_pipeline_tests.tables import every_case

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_sentence_and_any_field_can_be_answered(
    sentence: str, field: str, message: str
) -> None:
    told = json.loads(bytes(refusal(400, "VALIDATION_ERROR", sentence, [(field, message)]).body))
    assert set(told) >= {"success", "error", "code", "details"}
    (fault,) = told["details"]
    assert set(fault) == {"field", "message"}


@every_case(
    ("text", "shown"),
    [("payload.a", "payload.a"), ("été", "été"), ("a\ud800b", "a\\ud800b"), ("\udfff", "\\udfff")],
)
def test_half_a_character_is_told_by_its_escape(text: str, shown: str) -> None:
    told = json.loads(bytes(refusal(400, "VALIDATION_ERROR", text, [(text, text)]).body))
    assert (told["error"], told["details"]) == (shown, [{"field": shown, "message": shown}])
