"""Tables of prices can be read on a plain terminal, and by whoever reads a pipe or a log."""

from collections.abc import Callable

import pytest

from automation_pipeline.cli.output import screen
from automation_pipeline.cli.pricing.tables import NARROWEST_FILE, print_price_table
from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.fakes.shop import FakeShop, variant

Sized = Callable[..., None]

IDS = "7000001/70000010001"
TITLE = "Pull col rond en laine n° 1 · S / terracotta"
COLUMNS = ("target", "variant", "sku", "before", "after", "change", "note")
ROW = (1, f"{TITLE}  {IDS}", "", "19.95 EUR", "16.90 EUR", "-15.3 %  -3.05 EUR", None)


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Sized:
    def sized(width: int, *, is_terminal: bool) -> None:
        monkeypatch.setattr(screen, "_width", width)
        monkeypatch.setattr(screen, "_force_terminal", is_terminal)

    return sized


def printed(capsys: pytest.CaptureFixture[str], *rows: tuple[object, ...]) -> list[str]:
    capsys.readouterr()
    print_price_table(COLUMNS, rows, texts={"variant", "sku", "note"})
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("width", [80, 250])
def test_a_row_in_a_file_is_one_line(capsys: pytest.CaptureFixture[str], on_terminal: Sized, width: int) -> None:
    on_terminal(width, is_terminal=False)
    header, row = printed(capsys, ROW)
    assert header.split() == ["target", "variant", "before", "after", "change"]
    assert row == f"1       {TITLE}  {IDS}  19.95 EUR  16.90 EUR  -15.3 %  -3.05 EUR"


def test_what_is_too_long_for_a_file_is_broken_between_words_only(
    capsys: pytest.CaptureFixture[str],
    on_terminal: Sized,
) -> None:
    on_terminal(80, is_terminal=False)
    lines = printed(capsys, (*ROW[:-1], "because " * 40))
    assert len(lines) > 2
    assert all(len(line) <= NARROWEST_FILE for line in lines)
    assert {word for line in lines for word in line.split() if word.startswith("b")} == {"before", "because"}
    assert "19.95 EUR  16.90 EUR  -15.3 %  -3.05 EUR" in lines[1]
    [long] = [line for line in printed(capsys, (*ROW[:-1], "x" * 200)) if "xxx" in line]
    assert long.endswith("x" * 200)


@pytest.mark.parametrize("width", [80, 250])
def test_a_terminal_shows_every_price_whole(capsys: pytest.CaptureFixture[str], on_terminal: Sized, width: int) -> None:
    on_terminal(width, is_terminal=True)
    lines = printed(capsys, ROW)
    assert all(len(line) <= width for line in lines)
    assert lines[0].split() == ["target", "variant", "before", "after", "change"]
    assert "19.95 EUR  16.90 EUR  -15.3 %  -3.05 EUR" in lines[1]
    assert any(IDS in line for line in lines)


def test_a_change_is_put_in_two_lines_before_a_table_is_given_up(
    capsys: pytest.CaptureFixture[str], on_terminal: Sized
) -> None:
    on_terminal(68, is_terminal=True)
    lines = printed(capsys, ROW)
    assert all(len(line) <= 68 for line in lines)
    assert lines[1].endswith("19.95 EUR  16.90 EUR  -15.3 %")
    assert lines[2].endswith("  -3.05 EUR")


def test_where_a_terminal_has_no_room_for_a_table_each_row_is_a_block(
    capsys: pytest.CaptureFixture[str],
    on_terminal: Sized,
) -> None:
    on_terminal(50, is_terminal=True)
    lines = printed(capsys, ROW, (2, *ROW[1:]))
    assert all(len(line) <= 50 for line in lines)
    assert [line.split() for line in lines if line.startswith("before")] == [["before", "19.95", "EUR"]] * 2
    assert not any(line.startswith(("sku", "note")) for line in lines)


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str], on_terminal: Sized) -> None:
    on_terminal(80, is_terminal=True)
    assert [line.split() for line in printed(capsys)] == [list(COLUMNS)]


PRICES = ("1995.00 EUR", "1795.50 EUR", "-10.0 %  -199.50 EUR")


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(
    ("words", "whole"),
    [
        (("preview", "1"), ("1795.50 EUR", "1615.95 EUR", "-10.0 %  -179.55 EUR", "1995.00 EUR -> 1795.50 EUR")),
        (("changes",), ("apply (rule:1)", *PRICES)),
        (("runs", "targets", "1"), ("APPLIED", *PRICES)),
        (("runs", "list"), ("APPLIED", "cli", "5 = 5 applied")),
    ],
)
def test_no_command_breaks_a_price_or_a_state_at_80_columns(
    workshop: Workshop,
    shop: FakeShop,
    on_terminal: Sized,
    words: tuple[str, ...],
    whole: tuple[str, ...],
    is_terminal: bool,
) -> None:
    shop.put(variant("70000010001", "7000001", 199_500, sku="SKU-" + "9" * 20, title=TITLE, compare_at=249_900))
    workshop.applied(
        name="A rule of a long name " * 5, transform={"op": "percent", "value": -10, "compareAt": "before"}
    )
    on_terminal(80, is_terminal=is_terminal)
    said = workshop.run(*words).out
    assert [one for one in whole if one not in said] == []
