"""Every command: help that teaches with an example, JSON on demand, one plain sentence when it
cannot be."""

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from automation_pipeline.cli import main
from automation_pipeline_tests.cli.org_jobs.counter import NOWHERE, Counter
from automation_pipeline_tests.tables import every_case


def every_command(of: TyperCommand | TyperGroup, *words: str) -> Iterator[tuple[str, ...]]:
    if not isinstance(of, TyperGroup):
        yield words
        return
    for name, command in of.commands.items():
        yield from every_command(command, *words, name)


def commands() -> list[tuple[str, ...]]:
    whole = typer.main.get_command(main.app)
    return list(every_command(whole.commands["org-jobs"]))


@every_case("words", commands(), ids=" ".join)
def test_every_command_has_an_example_and_json_output(
    bare: Counter, words: tuple[str, ...]
) -> None:
    result = bare.printed(*words, "--help")
    assert "For example" in result.replace("for example", "For example")
    assert f"automation org-jobs {' '.join(words)}" in result
    assert "--json" in result


def test_the_public_command_names_exist() -> None:
    values = {" ".join(words) for words in commands()}
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
    wanted = {f"{noun} {deed}" for noun, deeds in nouns.items() for deed in deeds.split()}
    assert (
        wanted | {"list", "show", "cancel", "retry", "create", "queues", "alerts", "audit-log"}
        <= values
    )


NOT_THERE = f"""
schedules show {NOWHERE}
schedules update {NOWHERE} --name x
schedules delete {NOWHERE} --yes
schedules pause {NOWHERE}
schedules resume {NOWHERE}
schedules run-now {NOWHERE}
schedules run-now {NOWHERE} --wait
schedules skip-next {NOWHERE}
schedules keep-next {NOWHERE}
schedules backfill {NOWHERE} --from 2026-05-01T00:00:00Z --until 2026-05-02T00:00:00Z
schedules next {NOWHERE}
schedules fires {NOWHERE}
schedules log {NOWHERE}
schedules list --org nobody
schedules create --org nobody --name x
show 99
cancel 99
retry 99
watch 99
log 99
list --org nobody
create --type HTTPS_CALL --org nobody
queues --org nobody
alerts --org nobody
audit-log --org nobody
backfills list --org nobody
backfills show 99
backfills cancel 99
orgs show nobody
orgs show NoName
orgs update nobody --name x
orgs suspend nobody
orgs resume nobody
hosts list --org nobody
hosts create --org nobody --name x
hosts show 99
hosts update 99 --name x
hosts delete 99 --yes
servers list --org nobody
servers create --org nobody --name x
servers show 99
servers update 99 --name x
servers delete 99 --yes
"""


@every_case("flag", [[], ["--json"]])
@every_case("command", NOT_THERE.strip().splitlines())
def test_an_unknown_id_prints_one_sentence(counter: Counter, command: str, flag: list[str]) -> None:
    message = counter.refused(*command.split(), *flag)
    assert message.endswith(" not found.")


WRONG = """
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


@every_case("command", WRONG.strip().splitlines())
def test_invalid_input_prints_one_sentence_and_exits_with_2(counter: Counter, command: str) -> None:
    assert counter.refused(*command.split(), code=2).endswith((".", "?"))


def test_creating_entities_requires_an_organisation(bare: Counter) -> None:
    message = bare.refused("hosts", "create", "--name", "paris-1", code=2)
    assert message == "There is no organisation: `automation org-jobs orgs create` adds one."


def test_a_single_organisation_is_the_default_and_several_require_an_option(
    counter: Counter,
) -> None:
    assert counter.json("hosts", "create", "--name", "paris-1")["orgId"] == "acme"
    counter.org("globex")
    message = counter.refused("schedules", "create", "--name", "x", code=2)
    assert message == "There are several organisations: name one with --org."
    assert (
        counter.json("hosts", "create", "--name", "paris-1", "--org", "globex")["orgId"] == "globex"
    )
