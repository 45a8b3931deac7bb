"""Tests of how price tables fit terminals, pipes, and logs."""

import pytest

from automation_pipeline.cli.output import MIN_FILE_WIDTH, print_fitted_table
from automation_pipeline_tests.cli.conftest import Sized

IDS = "7000001/70000010001"
TITLE = "Pull col rond en laine n° 1 · S / terracotta"
COLUMNS = ("target", "variant", "sku", "before", "after", "change", "note")
ROW = (1, f"{TITLE}  {IDS}", "", "19.95 EUR", "16.90 EUR", "-15.3 %  -3.05 EUR", None)


def printed(capsys: pytest.CaptureFixture[str], *rows: tuple[object, ...]) -> list[str]:
    capsys.readouterr()
    print_fitted_table(COLUMNS, rows, texts={"variant", "sku", "note"})
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("width", [80, 250])
def test_a_row_in_redirected_output_is_one_line(
    capsys: pytest.CaptureFixture[str], on_terminal: Sized, width: int
) -> None:
    on_terminal(width, is_terminal=False)
    header, row = printed(capsys, ROW)
    assert header.split() == ["target", "variant", "before", "after", "change"]
    assert row == f"1       {TITLE}  {IDS}  19.95 EUR  16.90 EUR  -15.3 %  -3.05 EUR"


def test_long_rows_in_redirected_output_wrap_only_between_words(
    capsys: pytest.CaptureFixture[str],
    on_terminal: Sized,
) -> None:
    on_terminal(80, is_terminal=False)
    lines = printed(capsys, (*ROW[:-1], "because " * 40))
    assert len(lines) > 2
    assert all(len(line) <= MIN_FILE_WIDTH for line in lines)
    assert {word for line in lines for word in line.split() if word.startswith("b")} == {
        "before",
        "because",
    }
    assert "19.95 EUR  16.90 EUR  -15.3 %  -3.05 EUR" in lines[1]
    [long] = [line for line in printed(capsys, (*ROW[:-1], "x" * 200)) if "xxx" in line]
    assert long.endswith("x" * 200)


@pytest.mark.parametrize("width", [80, 250])
def test_a_terminal_does_not_wrap_prices(
    capsys: pytest.CaptureFixture[str], on_terminal: Sized, width: int
) -> None:
    on_terminal(width, is_terminal=True)
    lines = printed(capsys, ROW)
    assert all(len(line) <= width for line in lines)
    assert lines[0].split() == ["target", "variant", "before", "after", "change"]
    assert "19.95 EUR  16.90 EUR  -15.3 %  -3.05 EUR" in lines[1]
    assert any(IDS in line for line in lines)


def test_a_narrow_terminal_wraps_the_change_column(
    capsys: pytest.CaptureFixture[str], on_terminal: Sized
) -> None:
    on_terminal(68, is_terminal=True)
    lines = printed(capsys, ROW)
    assert all(len(line) <= 68 for line in lines)
    assert lines[1].endswith("19.95 EUR  16.90 EUR  -15.3 %")
    assert lines[2].endswith("  -3.05 EUR")


def test_a_terminal_too_narrow_for_a_table_prints_each_row_as_a_block(
    capsys: pytest.CaptureFixture[str],
    on_terminal: Sized,
) -> None:
    on_terminal(50, is_terminal=True)
    lines = printed(capsys, ROW, (2, *ROW[1:]))
    assert all(len(line) <= 50 for line in lines)
    assert [line.split() for line in lines if line.startswith("before")] == [
        ["before", "19.95", "EUR"]
    ] * 2
    assert not any(line.startswith(("sku", "note")) for line in lines)


def test_an_empty_table_has_a_header(
    capsys: pytest.CaptureFixture[str], on_terminal: Sized
) -> None:
    on_terminal(80, is_terminal=True)
    assert [line.split() for line in printed(capsys)] == [list(COLUMNS)]
