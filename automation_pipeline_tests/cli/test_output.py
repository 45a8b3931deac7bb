"""Texts, files and pages that commands print."""

import io
import json
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import typer
from rich.text import Text

from automation_pipeline.cli import output
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, JsonModel
from automation_pipeline_tests.cases import every_case

AT = datetime(2026, 5, 4, 10, 7, 9, tzinfo=UTC)


class Item(JsonModel):
    id: Id


@every_case(
    ("shown", "expected"),
    [
        (output.counted(0, "price"), "0 prices"),
        (output.counted(1, "price"), "1 price"),
        (output.counted(2, "price"), "2 prices"),
        (output.minute(None), ""),
        (output.minute(AT), "2026-05-04 10:07"),
        (output.second(None), None),
        (output.second(AT), "2026-05-04 10:07:09 UTC"),
        (output.iso_seconds(AT.astimezone(timezone(timedelta(hours=2)))), "2026-05-04T10:07:09Z"),
        (output.compact(a=0, b=None, c=""), {"a": 0, "c": ""}),
        (output.one_line(" a\n  b "), "a b"),
        (output.json_line({"é": 1}), '{"é": 1}'),
        (output.delivery_cell("failed", "No\nanswer"), "failed: No answer"),
        (output.delivery_cell("sent", None), "sent"),
        (output.file_name(Path("-")), "Standard input"),
        (output.file_name(Path("a/b")), "a/b"),
        (str(output.severity_cell("critical").style), "red"),
        (output.severity_cell("warning").plain, "warning"),
    ],
)
def test_values_are_shown_as_text(shown: object, expected: object) -> None:
    assert shown == expected


def test_a_document_is_written_to_a_file(tmp_path: Path) -> None:
    output.write_json(tmp_path / "a.json", {"é": [1]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert text == '{\n  "é": [\n    1\n  ]\n}\n'
    for path, reason in ((tmp_path, "Is a directory"), (Path("a\0"), "it is not a file name")):
        with pytest.raises(InvalidInputError) as refused:
            output.write_json(path, {})
        assert str(refused.value) == f"{path} cannot be written: {reason}."


@every_case(
    ("limit", "offset", "hint"),
    [
        (3, None, None),
        (2, None, "There are more rows: --after 2 shows the next page."),
        (2, 0, "There are more rows: --offset 2 shows the next page."),
        (1, 7, "There are more rows: --offset 8 shows the next page."),
    ],
)
def test_a_page_names_the_next_page(limit: int, offset: int | None, hint: str | None) -> None:
    found = [Item(id=number) for number in (1, 2, 3)]
    shown: list[list[int]] = []
    printed: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "say", printed.append)
        patch.setattr(output, "print_json", printed.append)
        for as_json in (False, True):
            output.show_page(
                "items",
                found,
                lambda rows: shown.append([row.id for row in rows]),
                limit=limit,
                offset=offset,
                as_json=as_json,
            )
    document = {
        "items": [{"id": str(number)} for number in (1, 2, 3)[:limit]],
        "more": hint is not None,
    }
    assert shown == [[1, 2, 3][:limit]]
    assert printed == ([document] if hint is None else [hint, document])


def test_one_value_is_printed_as_a_document_or_a_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages: list[Item] = []
    output.show_one(Item(id=7), pages.append, as_json=False)
    assert (pages, capsys.readouterr().out) == ([Item(id=7)], "")
    output.show_one(Item(id=7), pages.append, as_json=True)
    assert (len(pages), capsys.readouterr().out) == (1, '{\n  "id": "7"\n}\n')


def test_a_table_shows_texts_without_mark_up(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("name", "note"), [("[bold]", None), (1, "[red]x[/red]")])
    output.print_facts({"a": "[b]", "missing": None, "zero": 0})
    output.say("[bold] 12")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "name    note",
        "[bold]",
        "1       [red]x[/red]",
        "a     [b]",
        "zero  0",
        "[bold] 12",
    ]


def test_control_characters_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b]0;x\x9b31m\u202e\r\nb"
    output.print_table(("name",), [(hostile,), (Text(hostile, "red"),)])
    output.print_facts({"name": hostile})
    output.say(hostile)
    shown, last = r"a\u001b]0;x\u009b31m\u202e", "b"
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "name",
        *(shown, last) * 2,
        f"name  {shown}",
        f"      {last}",
        *(shown, last),
    ]
    output.print_json({"name": hostile})
    document = capsys.readouterr().out
    assert json.loads(document) == {"name": hostile}
    assert document.replace("\n", "").isprintable()


@pytest.mark.parametrize(("answer", "agrees"), [("y\n", True), ("n\n", False)])
def test_a_user_is_asked_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    agrees: bool,
) -> None:
    stdin = io.StringIO(answer * 2)
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(InvalidInputError) as refused:
        output.consent("Delete it?", "delete it")
    assert str(refused.value) == "Standard input is not a terminal: add --yes to delete it."
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    assert output.consent("Delete it?", "delete it") is agrees
    captured = capsys.readouterr()
    assert ("Delete it? [y/N]" in captured.err, captured.out.strip()) == (True, "")
    if agrees:
        output.confirm("Delete it?", "delete it")
    else:
        with pytest.raises(typer.Abort):
            output.confirm("Delete it?", "delete it")
