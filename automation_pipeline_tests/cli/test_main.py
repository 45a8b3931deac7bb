"""Tests of the command tree: exit codes and one-sentence errors, and help for every command."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest
import typer
from typer.core import TyperGroup

from automation_pipeline.cli.main import COMMANDS, app
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.terminal import DAILY, Terminal, open_terminal


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def commands(group: TyperGroup, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


def every_command() -> list[tuple[str, ...]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return list(commands(group))


def refused(terminal: Terminal, arguments: str, code: int, given: bytes = b"") -> str:
    """Return the error message, which must be the only output."""
    ended = terminal.run(*arguments.split(), given=given)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.endswith((".\n", "?\n"))
    assert ended.err.count("\n") == 1
    return ended.err.strip()


@every_case("arguments", every_command(), ids=" ".join)
def test_every_command_has_help(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    ended = terminal.run(*arguments, "--help")
    assert (ended.code, ended.err) == (0, "")
    usage, _, explanation = ended.out.strip().partition("\n\n")
    assert usage.startswith(" ".join(("Usage: automation", *arguments)))
    assert explanation.strip()[0].isupper()


@every_case("arguments", ["", "db", "schedules", "runs"])
def test_a_group_without_a_command_prints_help_and_exits_with_2(
    terminal: Terminal, arguments: str
) -> None:
    ended = terminal.run(*arguments.split())
    assert ended.code == 2
    assert "Commands:" in ended.out + ended.err


@every_case(
    ("arguments", "sentence"),
    [
        ("--bogus", "No such option: --bogus."),
        ("bogus", "No such command 'bogus'."),
        ("schedules bogus", "No such command 'bogus'."),
        ("schedules list --bogus", "No such option: --bogus."),
        ("schedules create", "Missing option '--file' / '-f'."),
        ("schedules create --file", "Option '--file' requires an argument."),
        ("schedules show", "Missing argument 'schedule_id'."),
        ("schedules show 1 2", "Got unexpected extra argument"),
        ("schedules show one", "Invalid value for 'schedule_id': "),
        ("schedules show 0", "Invalid value for 'schedule_id': "),
        ("schedules show 99999999999999999999", "Invalid value for 'schedule_id': "),
        ("schedules next 1.5", "Invalid value for 'schedule_id': "),
        ("schedules next 1 --count 0", "Invalid value for '--count': "),
        ("schedules next 1 --count 1001", "Invalid value for '--count': "),
        (
            "schedules next 1 --after tomorrow",
            "--after is not an ISO instant such as 2026-03-29T01:00:00Z: tomorrow.",
        ),
        (
            "schedules next 1 --after 9999-12-31",
            "--after must lie between the years 1970 and 2999: 9999-12-31.",
        ),
        ("schedules run-now", "Missing argument 'schedule_id'."),
        ("runs show abc", "Invalid value for 'run_id': "),
        ("runs list --limit 0", "Invalid value for '--limit': "),
        ("runs list --offset -1", "Invalid value for '--offset': "),
        ("runs list --offset 99999999999999999999", "Invalid value for '--offset': "),
        ("runs list --schedule x", "Invalid value for '--schedule': "),
        ("simulator --port 70000", "Invalid value for '--port': "),
    ],
)
def test_invalid_usage_exits_with_2(terminal: Terminal, arguments: str, sentence: str) -> None:
    assert refused(terminal, arguments, 2).startswith(sentence)


@every_case("arguments", ["schedules create --file", "schedules run-now 1 --selection"])
@every_case(
    ("name", "content", "sentence"),
    [
        ("missing.json", None, "missing.json cannot be read: No such file or directory."),
        (".", None, ". cannot be read: Is a directory."),
        (
            "f.json",
            b'{"name":',
            "f.json is not valid JSON: Expecting value: line 1 column 9 (char 8).",
        ),
        ("f.json", b"", "f.json is not valid JSON: Expecting value: line 1 column 1 (char 0)."),
        ("f.json", b"[" * 100_000, "f.json is not valid JSON: it is nested too deeply."),
        ("f.json", b"[1]", "f.json must contain a JSON object."),
        ("f.json", b"null", "f.json must contain a JSON object."),
        ("f.json", b'{"name": "\xff"}', "f.json cannot be read: it is not UTF-8 text."),
        ("-", b'{"name": "\xff"}', "Standard input cannot be read: it is not UTF-8 text."),
        ("-", b"{]", "Standard input is not valid JSON: "),
        ("-", b"7", "Standard input must contain a JSON object."),
    ],
)
def test_an_unusable_file_exits_with_2(
    terminal: Terminal, arguments: str, name: str, content: bytes | None, sentence: str
) -> None:
    terminal.create()
    if content is not None and name != "-":
        (terminal.folder / name).write_bytes(content)
    assert refused(terminal, f"{arguments} {name}", 2, given=content or b"").startswith(sentence)
    assert terminal.json("runs", "list") == {"runs": []}


@every_case(
    ("change", "problem"),
    [
        ({"nmae": "Sales"}, "nmae: is not a known field."),
        ({"name": ""}, "name: must have at least 1 character."),
        ({"timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is not a known time zone."),
        ({"timeOfDay": "25:00"}, "timeOfDay: must be a time of day between 00:00 and 23:59."),
        ({"timeOfDay": None}, "timeOfDay: DAILY schedule requires timeOfDay."),
        (
            {"scheduleType": "CRON", "cronExpression": "* * *"},
            "cronExpression: A cron expression has five fields, ",
        ),
        ({"scheduleType": "CRON"}, "cronExpression: CRON schedule requires cronExpression."),
        (
            {"ficheSelection": {"mode": "all"}},
            "ficheSelection.mode: must be 'date_range', 'manual' or 'filter'.",
        ),
        (
            {"ficheSelection": {"mode": "manual", "maxFiches": 10**12}},
            "ficheSelection.maxFiches: must be at most",
        ),
        ({"name": "\ud800"}, "name: must not hold half a character."),
        ({"a\nb": 1}, "a b: is not a known field."),
    ],
)
def test_an_invalid_schedule_is_reported_in_one_sentence_and_not_stored(
    terminal: Terminal, change: dict[str, object], problem: str
) -> None:
    given = json.dumps(DAILY | change).encode()
    sentence = refused(terminal, "schedules create --file - --json", 2, given=given)
    assert sentence.startswith(f"Invalid automation schedule data: {problem}")
    assert terminal.json("schedules", "list", "--include-inactive") == {"schedules": []}


def test_every_invalid_field_is_in_the_error(terminal: Terminal) -> None:
    given = json.dumps(DAILY | {"name": "", "maxRetries": 9}).encode()
    assert refused(terminal, "schedules create --file -", 2, given=given) == (
        "Invalid automation schedule data: name: must have at least 1 character; maxRetries: must be at most 5."
    )


@every_case(
    ("arguments", "sentence"),
    [
        ("schedules show 7", "Schedule 7 not found."),
        ("schedules next 7", "Schedule 7 not found."),
        ("schedules run-now 7", "Schedule 7 not found."),
        ("runs show 7", "Run 7 not found."),
        ("runs logs 7", "Run 7 not found."),
    ],
)
@every_case("flag", ["", " --json"])
def test_an_unknown_id_exits_with_1(
    terminal: Terminal, arguments: str, flag: str, sentence: str
) -> None:
    assert refused(terminal, arguments + flag, 1) == sentence


USING_THE_DATABASE = [
    "schedules list",
    "schedules show 1",
    "schedules next 1",
    "schedules run-now 1",
    "runs list",
]


@every_case(
    "arguments", [*USING_THE_DATABASE, "runs show 1", "runs logs 1", "db upgrade", "db current"]
)
def test_an_unreachable_database_exits_with_1(terminal: Terminal, arguments: str) -> None:
    terminal.export(DATABASE_URL="postgresql://anna:s3cret@127.0.0.1:9/work")
    sentence = refused(terminal, arguments, 1)
    assert sentence.startswith("The database does not answer: ")
    assert "s3cret" not in sentence


@every_case("arguments", USING_THE_DATABASE)
def test_a_database_without_tables_exits_with_1_and_names_the_remedy(
    terminal: Terminal, arguments: str
) -> None:
    (terminal.folder / "empty.db").touch()
    terminal.export(DATABASE_URL="sqlite:///empty.db")
    assert (
        refused(terminal, arguments, 1)
        == "The database has no tables yet: run `automation db upgrade`."
    )


@every_case("arguments", [*USING_THE_DATABASE, "doctor", "db upgrade"])
def test_an_invalid_environment_variable_is_named_and_exits_with_2(
    terminal: Terminal, arguments: str
) -> None:
    terminal.export(FICHE_FETCH_CONCURRENCY="many")
    assert refused(terminal, arguments, 2).startswith(
        "FICHE_FETCH_CONCURRENCY cannot be used: it should be a valid"
    )


def shell(terminal: Terminal, arguments: str) -> tuple[int, str]:
    """Run a shell command with the real `automation` program; return exit code and stderr."""
    python = f'automation() {{ "{sys.executable}" -c "from automation_pipeline.cli.main import main; main()" "$@"; }}; '
    ended = subprocess.run(
        ["bash", "-c", python + arguments],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ended.returncode, ended.stderr


@every_case(
    ("arguments", "output", "sentence"),
    [
        (
            "schedules show 1 --json",
            "> /dev/full",
            "Standard output cannot be written: No space left on device.\n",
        ),
        ("--help", "1< /dev/null", "Standard output cannot be written: Bad file descriptor.\n"),
        ("runs list --json", ">&-", "Standard output is closed.\n"),
        ("schedules list", "> >(exec true)", ""),
    ],
)
def test_an_unwritable_output_is_reported_in_one_sentence(
    terminal: Terminal, arguments: str, output: str, sentence: str
) -> None:
    terminal.create(description="long " * 5_000)
    gone = "wait $!; " if not sentence else ""
    assert shell(terminal, f"{{ {gone}automation {arguments}; }} {output}") == (1, sentence)


def test_the_command_table_uses_the_help_of_each_command() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    listed = {one.name: one.help for one in COMMANDS}
    assert listed == {
        name: command.get_short_help_str(1000) for name, command in group.commands.items()
    }


LOADED = """
import sys
from automation_pipeline.cli.main import run
run(sys.argv[1:])
packages = "sqlalchemy fastapi dagster alembic httpx".split()
print(*(name for name in packages if name in sys.modules), file=sys.stderr)
"""


@every_case("arguments", ["--help", "--version", "bogus"])
def test_help_imports_no_command_module(arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, arguments], capture_output=True, text=True, check=True
    )
    assert ended.stderr.splitlines()[-1] == ""
    assert "..." not in ended.stdout.replace("[ARGS]...", "")


def test_version_and_completion_options_exist(terminal: Terminal) -> None:
    ended = terminal.run("--version")
    assert (ended.code, ended.out) == (0, f"automation {version('automation-pipeline')}\n")
    offered = terminal.run("--help").out
    assert "--install-completion" in offered
    assert "--show-completion" in offered
