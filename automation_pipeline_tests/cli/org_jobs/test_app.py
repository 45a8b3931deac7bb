"""Tests of every org-jobs command: help with an example, JSON output, one-sentence errors."""

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from automation_pipeline.cli import main
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.org_jobs.commands import UNKNOWN_ID, OrgJobsCommands


def every_command(of: TyperCommand | TyperGroup, *arguments: str) -> Iterator[tuple[str, ...]]:
    if not isinstance(of, TyperGroup):
        yield arguments
        return
    for name, command in of.commands.items():
        yield from every_command(command, *arguments, name)


def commands() -> list[tuple[str, ...]]:
    app = typer.main.get_command(main.app)
    return list(every_command(app.commands["org-jobs"]))


@every_case("arguments", commands(), ids=" ".join)
def test_every_command_has_an_example_and_json_output(
    without_org: OrgJobsCommands, arguments: tuple[str, ...]
) -> None:
    result = without_org.printed(*arguments, "--help")
    assert "For example" in result.replace("for example", "For example")
    assert f"automation org-jobs {' '.join(arguments)}" in result
    assert "--json" in result


def test_the_public_command_names_exist() -> None:
    values = {" ".join(arguments) for arguments in commands()}
    schedules = "create list show update delete pause resume run-now skip-next keep-next "
    schedules += "backfill next fires log preview"
    nouns = {
        "schedules": schedules,
        "backfills": "list show cancel",
        "orgs": "list create show update suspend resume",
        "hosts": "list create update delete",
        "servers": "list create update delete",
        "types": "list create update delete",
    }
    expected = {f"{noun} {verb}" for noun, verbs in nouns.items() for verb in verbs.split()}
    assert (
        expected | {"list", "show", "cancel", "retry", "create", "queues", "alerts", "audit-log"}
        <= values
    )


COMMANDS_WITH_UNKNOWN_IDS = f"""
schedules show {UNKNOWN_ID}
schedules update {UNKNOWN_ID} --name x
schedules delete {UNKNOWN_ID} --yes
schedules pause {UNKNOWN_ID}
schedules resume {UNKNOWN_ID}
schedules run-now {UNKNOWN_ID}
schedules run-now {UNKNOWN_ID} --wait
schedules skip-next {UNKNOWN_ID}
schedules keep-next {UNKNOWN_ID}
schedules backfill {UNKNOWN_ID} --from 2026-05-01T00:00:00Z --until 2026-05-02T00:00:00Z
schedules next {UNKNOWN_ID}
schedules fires {UNKNOWN_ID}
schedules log {UNKNOWN_ID}
schedules list --org unknown
schedules create --org unknown --name x
show 99
cancel 99
retry 99
watch 99
log 99
list --org unknown
create --type HTTPS_CALL --org unknown
queues --org unknown
alerts --org unknown
audit-log --org unknown
backfills list --org unknown
backfills show 99
backfills cancel 99
orgs show unknown
orgs show NoName
orgs update unknown --name x
orgs suspend unknown
orgs resume unknown
hosts list --org unknown
hosts create --org unknown --name x
hosts show 99
hosts update 99 --name x
hosts delete 99 --yes
servers list --org unknown
servers create --org unknown --name x
servers show 99
servers update 99 --name x
servers delete 99 --yes
"""


@every_case("flag", [[], ["--json"]])
@every_case("command", COMMANDS_WITH_UNKNOWN_IDS.strip().splitlines())
def test_an_unknown_id_prints_one_sentence(
    org_jobs: OrgJobsCommands, command: str, flag: list[str]
) -> None:
    message = org_jobs.refused(*command.split(), *flag)
    assert message.endswith(" not found.")


INVALID_COMMANDS = """
schedules show x
schedules next x
schedules list --state sleeping
schedules list --limit 0
schedules create --file missing.json
schedules create --payload {
schedules create --payload []
schedules create --window 22:00
schedules create --start tomorrow
schedules create --end 2026-05-01T00:00:00
schedules create --overlap sometimes
schedules create --server 0
schedules update 00000000-0000-4000-8000-000000000000
schedules pause 00000000-0000-4000-8000-000000000000 --until later
schedules run-now 00000000-0000-4000-8000-000000000000 --payload 7
schedules backfill 00000000-0000-4000-8000-000000000000
schedules backfill 00000000-0000-4000-8000-000000000000 --from x --until y
schedules next 00000000-0000-4000-8000-000000000000 --after 2026
schedules next 00000000-0000-4000-8000-000000000000 --count 0
schedules preview --cron x
show x
show 0
list --status done
list --schedule x
cancel
retry 1.5
create
create --type SLEEP
orgs create
orgs update acme
hosts create
hosts update 1
hosts update 1 --maintenance-until x
hosts update 1 --maintenance-until 2026-05-01T00:00:00Z --end-maintenance
servers create --host x
servers update 1
servers update 1 --host 1 --no-host
audit-log --id 1
"""


@every_case("command", INVALID_COMMANDS.strip().splitlines())
def test_invalid_input_prints_one_sentence_and_exits_with_2(
    org_jobs: OrgJobsCommands, command: str
) -> None:
    assert org_jobs.refused(*command.split(), code=2).endswith((".", "?"))


@every_case(
    ("arguments", "message"),
    [
        (
            ["create", "--payload", "{"],
            (
                "--payload is not valid JSON: "
                "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."
            ),
        ),
        (
            ["create", "--payload", "[" * 100_000],
            "--payload is not valid JSON: it is nested too deeply.",
        ),
        (
            ["create", "--payload", "7"],
            '--payload must be a JSON object, such as {"command": "save-all"}.',
        ),
        (
            ["schedules", "create", "--start", "soon"],
            "--start is not an ISO instant such as 2026-03-29T01:00:00Z: soon.",
        ),
        (
            ["schedules", "create", "--end", "2026-05-01T00:00:00"],
            "--end must end with Z or an offset such as +02:00: 2026-05-01T00:00:00.",
        ),
        (
            ["schedules", "create", "--window", "22:00"],
            "--window has a start and an end, such as 22:00-06:00: 22:00.",
        ),
        (
            ["hosts", "update", "1"],
            "Nothing to change: name fields by flags or with --file.",
        ),
        (
            [
                "orgs",
                "update",
                "acme",
                "--maintenance-until",
                "2026-05-01T00:00:00Z",
                "--end-maintenance",
            ],
            "Use either --maintenance-until or --end-maintenance.",
        ),
        (["servers", "update", "1", "--host", "1", "--no-host"], "Use either --host or --no-host."),
        (["audit-log", "--id", "1"], "--id requires --entity."),
    ],
)
def test_the_error_about_an_option_names_it(
    org_jobs: OrgJobsCommands, arguments: list[str], message: str
) -> None:
    assert org_jobs.refused(*arguments, code=2) == message


def test_creating_entities_requires_an_organisation(without_org: OrgJobsCommands) -> None:
    message = without_org.refused("hosts", "create", "--name", "paris-1", code=2)
    assert message == "There is no organisation: `automation org-jobs orgs create` adds one."


def test_a_single_organisation_is_the_default_and_several_require_an_option(
    org_jobs: OrgJobsCommands,
) -> None:
    assert org_jobs.json("hosts", "create", "--name", "paris-1")["orgId"] == "acme"
    org_jobs.org("globex")
    message = org_jobs.refused("schedules", "create", "--name", "x", code=2)
    assert message == "There are several organisations: name one with --org."
    assert (
        org_jobs.json("hosts", "create", "--name", "paris-1", "--org", "globex")["orgId"]
        == "globex"
    )
