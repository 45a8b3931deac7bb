"""Who mistypes a project is told so, and not that all is well."""

from automation_pipeline_tests.cli.terminal import Terminal
from automation_pipeline_tests.tables import every_case

COMMANDS = [
    ("dlq",), ("dlq", "--retry"), ("dlq", "--acknowledge"), ("runs", "list"), ("rules", "list"), ("alerts",),
    ("changes",), ("policy", "show"), ("policy", "remove"),
]  # fmt: skip


@every_case("words", COMMANDS)
@every_case("name", ["a b", "", "a/b"])
def test_a_name_that_no_project_can_have_is_refused(
    terminal: Terminal, words: tuple[str, ...], name: str
) -> None:
    ended = terminal.run("pricing", *words, "--project", name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Invalid request: project: must be 1 to 100 of the letters")
