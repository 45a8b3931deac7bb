"""Every pricing command: help that teaches with an example, JSON on demand, one plain sentence when it cannot be."""

from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from automation_pipeline.cli import main
from automation_pipeline_tests.cli.terminal import Terminal


def every_command(of: TyperCommand | TyperGroup, *words: str) -> Iterator[tuple[str, ...]]:
    if not isinstance(of, TyperGroup):
        yield words
        return
    for name, command in of.commands.items():
        yield from every_command(command, *words, name)


def commands() -> list[tuple[str, ...]]:
    whole = typer.main.get_command(main.app)
    return list(every_command(whole.commands["pricing"], "pricing"))


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_teaches_with_an_example_and_speaks_json(terminal: Terminal, words: tuple[str, ...]) -> None:
    ended = terminal.run(*words, "--help")
    said = " ".join(ended.out.split())
    assert (ended.code, ended.err) == (0, "")
    assert "For example" in said
    assert "--json" in said


def test_the_names_that_others_hold_on_to_are_there() -> None:
    told = {" ".join(words[1:]) for words in commands()}
    runs = {f"runs {what}" for what in ("list", "show", "apply", "retry", "rollback", "reconcile", "cancel")}
    rules = {f"rules {what}" for what in ("create", "list", "show", "update", "delete")}
    assert runs | rules | {"preview", "dlq"} <= told
