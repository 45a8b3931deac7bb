"""Tests of every pricing command: help with an example, JSON output, one-sentence errors."""

from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from automation_pipeline.cli import main
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.conftest import Sized
from automation_pipeline_tests.cli.pricing.commands import PricingCommands
from automation_pipeline_tests.cli.terminal import Terminal
from automation_pipeline_tests.fakes.shop import FakeShop, variant


def every_command(of: TyperCommand | TyperGroup, *arguments: str) -> Iterator[tuple[str, ...]]:
    if not isinstance(of, TyperGroup):
        yield arguments
        return
    for name, command in of.commands.items():
        yield from every_command(command, *arguments, name)


def commands() -> list[tuple[str, ...]]:
    app = typer.main.get_command(main.app)
    return list(every_command(app.commands["pricing"], "pricing"))


@every_case("arguments", commands(), ids=" ".join)
def test_every_command_has_an_example_and_json_output(
    terminal: Terminal, arguments: tuple[str, ...]
) -> None:
    ended = terminal.run(*arguments, "--help")
    output = " ".join(ended.out.split())
    assert (ended.code, ended.err) == (0, "")
    assert "For example" in output
    assert "--json" in output


def test_the_public_command_names_exist() -> None:
    values = {" ".join(arguments[1:]) for arguments in commands()}
    runs = {
        f"runs {what}"
        for what in ("list", "show", "apply", "retry", "rollback", "reconcile", "cancel")
    }
    rules = {f"rules {what}" for what in ("create", "list", "show", "update", "delete")}
    assert runs | rules | {"preview", "dlq"} <= values


TITLE = "Pull col rond en laine n° 1 · S / terracotta"
PRICES = ("1995.00 EUR", "1795.50 EUR", "-10.0 %  -199.50 EUR")


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(
    ("arguments", "unbroken"),
    [
        (
            ("preview", "1"),
            ("1795.50 EUR", "1615.95 EUR", "-10.0 %  -179.55 EUR", "1995.00 EUR -> 1795.50 EUR"),
        ),
        (("changes",), ("apply (rule:1)", *PRICES)),
        (("runs", "targets", "1"), ("APPLIED", *PRICES)),
        (("runs", "list"), ("APPLIED", "cli", "5 = 5 applied")),
    ],
)
def test_no_command_wraps_a_price_or_a_status_at_80_columns(
    commands: PricingCommands,
    shop: FakeShop,
    on_terminal: Sized,
    arguments: tuple[str, ...],
    unbroken: tuple[str, ...],
    is_terminal: bool,
) -> None:
    shop.add(
        variant(
            "70000010001",
            "7000001",
            199_500,
            sku="SKU-" + "9" * 20,
            title=TITLE,
            compare_at=249_900,
        )
    )
    commands.applied(
        name="A rule of a long name " * 5,
        transform={"op": "percent", "value": -10, "compareAt": "before"},
    )
    on_terminal(80, is_terminal=is_terminal)
    output = commands.run(*arguments).out
    assert [one for one in unbroken if one not in output] == []


OF_A_PROJECT = [
    ("dlq",), ("dlq", "--retry"), ("dlq", "--acknowledge"), ("runs", "list"), ("rules", "list"), ("alerts",),
    ("changes",), ("policy", "show"), ("policy", "remove"),
]  # fmt: skip


@every_case("arguments", OF_A_PROJECT)
@every_case("name", ["a b", "", "a/b"])
def test_an_invalid_project_name_is_rejected(
    terminal: Terminal, arguments: tuple[str, ...], name: str
) -> None:
    ended = terminal.run("pricing", *arguments, "--project", name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Invalid request: project: must be 1 to 100 of the letters")
