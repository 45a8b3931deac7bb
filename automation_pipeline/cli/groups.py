"""Groups of commands. `automation` imports the module of a command only when the command runs."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

_NO_LIMIT = 1000


class CommandGroup(TyperGroup):
    """Lists its commands with the complete first sentence of their help, which Typer cuts to one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  types that Typer keeps private
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(_NO_LIMIT))
                    for name, command in commands
                    if command
                ]
            )


def command_group(summary: str) -> typer.Typer:
    return typer.Typer(cls=CommandGroup, help=summary, no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True)
class LazyCommand:
    """A Typer application or a function: `attribute` of `module`. `help` is the first sentence of its help."""

    name: str
    module: str
    attribute: str
    help: str

    def load(self) -> TyperCommand | TyperGroup:
        loaded = getattr(import_module(f"automation_pipeline.{self.module}"), self.attribute)
        parent = typer.Typer(rich_markup_mode=None)
        if isinstance(loaded, typer.Typer):
            parent.add_typer(loaded, name=self.name)
        else:
            parent.command(self.name)(loaded)
        command = typer.main.get_group(parent).commands[self.name]
        assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101  Typer creates no others
        return command


class _LazyCommands(Mapping[str, TyperCommand | TyperGroup]):
    def __init__(self, table: Mapping[str, LazyCommand]) -> None:
        self._table = table
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in self._loaded:
            self._loaded[name] = self._table[name].load()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def lazy_group(*commands: LazyCommand) -> type[TyperGroup]:
    """Return a group that lists and completes its commands without importing them."""
    table = {command.name: command for command in commands}

    class LazyGroup(CommandGroup):
        def __init__(self, **attributes: Any) -> None:  # noqa: ANN401  Typer's arguments
            super().__init__(**attributes)
            self.commands = cast("MutableMapping[str, Any]", _LazyCommands(table))

        def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002  Typer's signature
            return list(table)

        def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | None:  # noqa: ARG002  Typer's signature
            """Return what help and completion show: the name and the help."""
            if cmd_name not in table:
                return None
            return TyperCommand(cmd_name, help=table[cmd_name].help)

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401  types that Typer keeps private
            name, _, rest = super().resolve_command(ctx, args)
            return name, self.commands[name] if name else None, rest

    return LazyGroup
