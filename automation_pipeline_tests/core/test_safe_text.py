"""Text of others in spreadsheets, in Markdown and on terminals."""

import io
import json
import logging

import pytest

from automation_pipeline.core.logs import configure_logs, log
from automation_pipeline.core.masking import csv_cell, markdown_cell, visible
from automation_pipeline.orchestration.metadata import table

HOSTILE = "\x1b]0;title\x07 \x9b31m red \x9d0;x\x9c \u202eevil \u2028 line \r over \x7f"


def test_no_text_is_a_formula_and_every_number_stays_one() -> None:
    cases = {
        "=1+1": "'=1+1", "+33 1": "'+33 1", "-2": "'-2", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "\r=1": "'\r=1",
        "\n=1": "'\n=1", "＝1": "'＝1", "a=1": "a=1", "": "", "NORD": "NORD", -2: -2, 1.5: 1.5, None: None,
    }  # fmt: skip
    assert {given: csv_cell(given) for given in cases} == cases


def test_a_cell_of_markdown_holds_no_markup() -> None:
    cases = {
        "a|b": r"a\|b", "a\\|b": r"a\\\|b", "a\nb": "a b", "[x](javascript:1)": r"\[x\](javascript:1)",
        "![x](https://e.test)": r"\!\[x\](https\://e.test)", "<img src=x>": r"\<img src=x\>", "`x`": r"\`x\`",
        "**b** _i_ ~~s~~": r"\*\*b\*\* \_i\_ \~\~s\~\~", "www.e.test": r"www\.e.test", "&lt;": r"\&lt;",
        "a@e.test": r"a\@e.test", "95.5 % (3/4)": "95.5 % (3/4)", "\x9bx": "\\\\u009bx",
    }  # fmt: skip
    told = {given: markdown_cell(given) for given in cases}
    assert {
        given: one for given, one in told.items() if one != cases[given] and "\x9b" not in given
    } == {}
    assert "\x9b" not in told["\x9bx"]
    assert table(("cause",), [("a|b",), (None,)]) == "| cause |\n|---|\n| a\\|b |\n| – |"
    assert table(("cause",), []) == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_of_the_log_commands_no_terminal(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure_logs("info", form)  # type: ignore[arg-type]  # one of the two
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError as error:
            log("automation_pipeline.tests").info(
                f"said {HOSTILE}", word="\x9b31m", words=HOSTILE, exc_info=error
            )
    finally:
        root = logging.getLogger()
        root.handlers = [one for one in root.handlers if type(one).__name__ != "_StandardError"]
    line = written.getvalue()
    harmful = [sign for sign in line if sign not in "\n\t" and visible(sign) != sign]
    assert harmful == []
    assert "\\u009b31m red" in line
    assert form == "text" or json.loads(line)["word"] == "\x9b31m"
