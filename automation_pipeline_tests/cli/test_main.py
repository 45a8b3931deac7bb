"""Tests of the command tree: exit codes and one-sentence errors, and help for every command."""

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from automation_pipeline.cli import main
from automation_pipeline.cli.main import COMMANDS, app
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RequestFailedError,
    TransientError,
    UpstreamError,
)
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.core.logs import configure_logs
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


class FakeCommand(TyperGroup):
    """A command tree that records how it is called, and then returns or raises `outcome`."""

    def __init__(self, outcome: int | BaseException | None) -> None:
        super().__init__(name="automation", commands={})
        self.outcome, self.calls = outcome, list[dict[str, object]]()

    def main(self, **call: object) -> int | None:
        self.calls.append(call)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@every_case(
    ("outcome", "code", "error"),
    [
        (None, 0, None),
        (3, 3, None),
        (Exit(4), 4, None),
        (Abort(), 130, None),
        (KeyboardInterrupt(), 130, None),
        (TyperException("Wrong  words"), 1, ("USAGE_ERROR", "Wrong words", {})),
        (
            InvalidInputError("Bad", (("a", "is b"), ("c", "is d"))),
            2,
            (
                "VALIDATION_ERROR",
                "Bad: a: is b; c: is d",
                {"fields": [{"field": "a", "message": "is b"}, {"field": "c", "message": "is d"}]},
            ),
        ),
        (InvalidInputError("Bad."), 2, ("VALIDATION_ERROR", "Bad.", {})),
        (NotFoundError("Run with ID '7' not found"), 1, ("NOT_FOUND", "Run 7 not found", {})),
        (
            ConflictError("Run with ID '7' not found"),
            1,
            ("CONFLICT", "Run with ID '7' not found", {}),
        ),
        (RequestFailedError("No"), 1, ("REQUEST_FAILED", "No", {})),
        (UpstreamError("No"), 1, ("EXTERNAL_API_ERROR", "No", {})),
        (TransientError("No"), 1, ("SERVICE_UNAVAILABLE", "No", {})),
        (PermanentError("No"), 1, ("CONFIGURATION_ERROR", "No", {})),
        (AutomationError("No"), 1, ("ERROR", "No", {})),
        (NotStartedError("TIMEOUT", "Late", {"requests": []}), 1, ("TIMEOUT", "Late", {"requests": []})),
    ],
)  # fmt: skip
def test_each_outcome_has_its_exit_code_and_error(
    outcome: int | BaseException | None,
    code: int,
    error: tuple[str, str, dict[str, object]] | None,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", lambda _app: FakeCommand(outcome))
        written = io.StringIO()
        patch.setattr(sys, "stderr", written)
        assert main.run(["runs"]) == code
        sentence = "" if error is None else f"{error[1].removesuffix('.')}.\n"
        assert written.getvalue() == sentence
        written.truncate(0)
        written.seek(0)
        assert main.run(["runs", "--json"]) == code
        if error is None:
            assert written.getvalue() == ""
            return
        document = json.loads(written.getvalue())["error"]
        assert (document["code"], document["message"], document["details"]) == error


def test_an_error_contains_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = FakeCommand(PermanentError("a\x1b[2J\x9b31mb"))
    monkeypatch.setattr(typer.main, "get_command", lambda _app: command)
    main.run(["runs"])
    assert capsys.readouterr().err == "a\\u001b[2J\\u009b31mb.\n"
    main.run(["runs", "--json"])
    document = capsys.readouterr().err
    assert json.loads(document)["error"]["message"] == "a\x1b[2J\x9b31mb"
    assert document.strip().isprintable()


@every_case(("columns", "width"), [(20, 50), (52, 50), (53, 51), (100, 98), (120, 118), (300, 118)])
def test_help_is_as_wide_as_the_terminal_within_limits(columns: int, width: int) -> None:
    command = FakeCommand(None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", lambda _app: command)
        patch.setenv("COLUMNS", str(columns))
        main.run(("runs", "list"))
    assert command.calls == [
        {
            "args": ["runs", "list"],
            "prog_name": "automation",
            "standalone_mode": False,
            "terminal_width": width,
        }
    ]


class BrokenOutput(io.StringIO):
    """A standard output over a file whose writes fail when they are flushed."""

    def __init__(self, error: OSError, file: Path) -> None:
        super().__init__()
        self._error, self._file = error, file.open("wb")

    def fileno(self) -> int:
        return self._file.fileno()

    def flush(self) -> None:
        raise self._error


def exit_code(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO | None) -> object:
    # The configuration of logs is global, and would affect later tests.
    if main.configure_logs is configure_logs:
        monkeypatch.setattr(main, "configure_logs", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["automation", "--version"])
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit) as ended:
        main.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EPIPE, "Broken pipe"), ""),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "Standard output cannot be written: No space left on device.\n",
        ),
    ],
)
def test_main_discards_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: OSError,
    message: str,
) -> None:
    output = BrokenOutput(error, tmp_path / "output")
    assert exit_code(monkeypatch, output) == 1
    assert capsys.readouterr().err == message
    os.write(output.fileno(), b"discarded")
    assert (tmp_path / "output").read_bytes() == b""


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "No file"), OSError(errno.EPIPE, "Broken", "a-file")]
)
def test_main_raises_other_system_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError
) -> None:
    with pytest.raises(OSError, match=str(error.strerror)):
        exit_code(monkeypatch, BrokenOutput(error, tmp_path / "output"))


def test_main_needs_a_standard_output_and_returns_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = io.StringIO()
    assert exit_code(monkeypatch, output) == 0
    assert output.getvalue() == f"automation {version('automation-pipeline')}\n"
    assert exit_code(monkeypatch, None) == 1
    assert capsys.readouterr().err == "Standard output is closed.\n"


def test_main_configures_logs_and_ignores_invalid_settings(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured: list[tuple[str, str]] = []
    monkeypatch.setattr(main, "configure_logs", lambda *given: configured.append(given))
    terminal.export(LOG_LEVEL="error", LOG_FORMAT="json")
    assert exit_code(monkeypatch, io.StringIO()) == 0
    terminal.export(LOG_LEVEL="loud")
    assert exit_code(monkeypatch, io.StringIO()) == 0
    assert len(configured) == 1
    assert tuple(map(str.lower, configured[0])) == ("error", "json")
