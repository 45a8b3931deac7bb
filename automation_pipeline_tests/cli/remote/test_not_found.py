"""Tests that every command prints `<Entity> <id> not found` for an unknown ID."""

import json
import re
from collections.abc import Iterator
from typing import Any

import typer

from automation_pipeline.cli.main import app
from automation_pipeline_tests.cli.remote.served import RemoteTerminal, served_over
from automation_pipeline_tests.cli.terminal import CommandResult, Terminal

NOT_FOUND = re.compile(r"[A-Z][a-z]+( [a-z]+)* [\w:-]+ not found(: .+)?\.\n")
IDS = {"int": "987654", "UUID": "00000000-0000-4000-8000-000000000000", "str": "987654"}
# The arguments that a command requires in addition to its ID.
REQUIRED_ARGUMENTS = {
    "schedules update": "--file -",
    "schedules backfill": "--from 2026-05-01 --to 2026-05-02",
    "audit-configs reorder": "1",
    "audits review": "--step 1 --conforme CONFORME",
    "audits rerun": "--step 1",
    "pricing rules update": "--file -",
    "org-jobs schedules update": "--name x",
    "org-jobs schedules backfill": "--from 2026-05-01T00:00:00Z --until 2026-05-02T00:00:00Z",
    "org-jobs orgs update": "--name x",
    "org-jobs hosts update": "--name x",
    "org-jobs servers update": "--name x",
}
INPUT_DOCUMENTS = {"pricing rules update": {"name": "x"}, "schedules update": {"name": "x"}}


def commands_with_an_id(group: Any, *above: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_with_an_id(command, *above, name)
            continue
        first = next((one for one in command.params if one.param_type_name == "argument"), None)
        if first is not None and first.name.endswith("_id") and name != "create":
            arguments = " ".join((*above, name))
            confirmed = ("--yes" for one in command.params if "--yes" in one.opts)
            kind = first.type_descriptor.annotation.__name__
            yield " ".join(
                [arguments, IDS[kind], *REQUIRED_ARGUMENTS.get(arguments, "").split(), *confirmed]
            )


def input_of(command: str) -> bytes:
    return next(
        (
            json.dumps(given).encode()
            for name, given in INPUT_DOCUMENTS.items()
            if command.startswith(name)
        ),
        b"",
    )


def violates_format(ended: CommandResult) -> bool:
    return (ended.code, ended.out) != (1, "") or not NOT_FOUND.fullmatch(ended.err)


def test_every_unknown_id_has_the_same_not_found_message(terminal: Terminal) -> None:
    terminal.export(SHOP_API_BASE_URL="https://shop.example.test", SHOP_API_TOKEN="t")
    with served_over(terminal.folder / "automation.db") as url:
        faults = errors_of(RemoteTerminal(terminal, url))
    assert not faults, "\n".join(faults)


def errors_of(remote: RemoteTerminal) -> list[str]:
    commands = list(commands_with_an_id(typer.main.get_command(app)))
    assert len(commands) > 60
    return [
        f"{command}, {location}: {ended}"
        for command in commands
        for location, run in (("local", remote.local.run), ("remote", remote.run))
        if violates_format(ended := run(*command.split(), given=input_of(command)))
    ]
