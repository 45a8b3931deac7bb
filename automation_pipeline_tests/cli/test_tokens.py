"""Tests of `automation tokens`: create, list, and revoke tokens; reject invalid input."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from automation_pipeline.access.commands import Permissions
from automation_pipeline.access.tokens import authenticate_token
from automation_pipeline.cli import operations
from automation_pipeline.core.access import Action, Caller, Permission, Scope
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.organisations import create_organisation
from automation_pipeline_tests.cli.conftest import Sized
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal

CREATE = (
    "tokens",
    "create",
    "--name",
    "nightly",
    "--permission",
    "automation.write",
    "--scope",
    "ALL",
)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def create(terminal: Terminal, *arguments: str) -> Any:
    return terminal.json("tokens", "create", *arguments)


def caller_of(terminal: Terminal, token: str) -> Caller | None:
    return authenticate_token(token, database=terminal.database, now=SystemClock().now())


def error_of(terminal: Terminal, code: int, *arguments: str) -> str:
    ended = terminal.run("tokens", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.endswith(".\n")
    assert ended.err.count("\n") == 1
    return ended.err.strip()


def test_the_help_names_every_permission() -> None:
    [_, option] = get_args(Permissions)
    named = re.findall(r"[\w.-]*\w", option.help.partition("The permissions are ")[2])
    assert set(named) - {"and"} == set(Permission)


def test_a_token_is_printed_once_and_authenticates(terminal: Terminal) -> None:
    document = terminal.json(*CREATE)
    assert list(document)[:2] == ["id", "token"]
    assert document["id"] == "1"
    assert document["token"].startswith(document["prefix"])
    assert (document["name"], document["state"], document["permissions"]) == (
        "nightly",
        "active",
        ["automation.write"],
    )
    assert (
        document["scope"],
        document["groupes"],
        document["crmUserId"],
        document["expiresAt"],
    ) == (
        "ALL",
        [],
        None,
        None,
    )
    caller = caller_of(terminal, document["token"])
    assert caller is not None
    assert caller.reach(Permission.AUTOMATION, Action.READ)
    [listed] = terminal.json("tokens", "list")["tokens"]
    assert listed["lastUsedAt"] is not None
    assert listed | {"lastUsedAt": None} == {name: document[name] for name in listed}
    assert "token" not in listed


def test_the_token_is_on_its_own_line_and_printed_only_on_creation(terminal: Terminal) -> None:
    output = terminal.run(*CREATE, "--expires-in-days", "30").out.splitlines()
    assert caller_of(terminal, output[0]) is not None
    assert output[-1] == "Keep the token: it is not shown again."
    facts = dict(line.strip().split(maxsplit=1) for line in output[1:-1])
    [listed] = terminal.json("tokens", "list")["tokens"]
    assert facts == {
        "id": "1",
        "name": "nightly",
        "permissions": "automation.write",
        "reaches": "every fiche",
        "expires": listed["expiresAt"],
    }
    for arguments in (
        ["list"],
        ["list", "--json"],
        ["list", "--all"],
        ["revoke", "1"],
        ["revoke", "1", "--json"],
    ):
        ended = terminal.run("tokens", *arguments)
        assert ended.code == 0
        assert output[0] not in ended.out + ended.err


@pytest.mark.parametrize(
    ("arguments", "permissions", "scope", "fields"),
    [
        ("-p fiches,audits.run -s all", ["fiches.read", "audits.write"], "ALL", {}),
        ("-p * --scope ALL", ["*"], "ALL", {}),
        ("-p all.read -p audits.write -s ALL", ["*.read", "audits.write"], "ALL", {}),
        (
            "-p fiches -s GROUP -g NORD --groupe [SUD]",
            ["fiches.read"],
            "GROUP",
            {"groupes": ["NORD", "[SUD]"]},
        ),
        ("-p fiches -s self --crm-user-id 77", ["fiches.read"], "SELF", {"crmUserId": "77"}),
        ("-p fiches -s ALL -n [bold]", ["fiches.read"], "ALL", {"name": "[bold]"}),
    ],
)
def test_options_set_the_permissions_and_the_scope(
    terminal: Terminal,
    arguments: str,
    permissions: list[str],
    scope: str,
    fields: dict[str, object],
) -> None:
    result = create(terminal, *arguments.split())
    assert (result["permissions"], result["scope"]) == (permissions, scope)
    assert result | {"name": "unnamed", **fields} == result
    caller = caller_of(terminal, result["token"])
    assert caller is not None
    assert {grant.read for grant in caller.grants.values()} == {Scope[scope]}
    row = terminal.run("tokens", "list").out
    assert str(fields.get("name", "unnamed")) in row


def test_a_revoked_token_is_rejected_and_no_longer_listed(terminal: Terminal) -> None:
    first, second = terminal.json(*CREATE), terminal.json(*CREATE)
    revoked = terminal.json("tokens", "revoke", "1")
    assert (revoked["id"], revoked["state"]) == ("1", "revoked")
    assert terminal.json("tokens", "revoke", "1") == revoked
    assert terminal.run("tokens", "revoke", "1").out == "Token 1 is revoked: nightly.\n"
    assert caller_of(terminal, first["token"]) is None
    assert caller_of(terminal, second["token"]) is not None
    assert [token["id"] for token in terminal.json("tokens", "list")["tokens"]] == ["2"]
    states = [
        (token["id"], token["state"])
        for token in terminal.json("tokens", "list", "--all")["tokens"]
    ]
    assert states == [("2", "active"), ("1", "revoked")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("-p nope -s ALL", "Invalid token: permissions.0: is not a permission: use fiches, "),
        ("-p fiches, -s ALL", "Invalid token: permissions.1: must not be empty."),
        ("-p fiches -s SOME", "Invalid token: scope: must be ALL, GROUP or SELF."),
        ("-p fiches -s GROUP", "Invalid token: groupes: is needed by the scope GROUP."),
        ("-p fiches -s SELF", "Invalid token: crmUserId: is needed by the scope SELF."),
        ("-p fiches -s ALL -g NORD", "Invalid token: groupes: goes with the scope GROUP only."),
        ("-p fiches", "Missing option '--scope' / '-s'."),
        ("-s ALL", "Missing option '--permission' / '-p'."),
        ("-p fiches -s ALL --expires-in-days 0", "Invalid value for '--expires-in-days': "),
        ("-p fiches -s ALL --expires-in-days soon", "Invalid value for '--expires-in-days': "),
    ],
)
def test_invalid_token_options_exit_with_2(
    terminal: Terminal, arguments: str, sentence: str
) -> None:
    assert error_of(terminal, 2, "create", *arguments.split()).startswith(sentence)
    assert terminal.json("tokens", "list", "--all") == {"tokens": []}


def test_an_unknown_id_exits_with_1(terminal: Terminal) -> None:
    assert error_of(terminal, 1, "revoke", "7") == "Token 7 not found."
    assert error_of(terminal, 1, "revoke", "7", "--json") == "Token 7 not found."


@pytest.mark.parametrize("wrong", ["one", "0", "99999999999999999999"])
def test_an_invalid_id_exits_with_2(terminal: Terminal, wrong: str) -> None:
    assert error_of(terminal, 2, "revoke", wrong).startswith("Invalid value for 'token_id': ")


def test_the_help_explains_how_to_use_a_token(terminal: Terminal) -> None:
    output = " ".join(terminal.run("tokens", "create", "--help").out.split())
    for arguments in (
        "Authorization: Bearer TOKEN",
        "X-API-Key: TOKEN",
        "automation.write",
        "GROUP",
        "only its hash",
    ):
        assert arguments in output


def test_a_token_belongs_to_the_named_organisation(terminal: Terminal) -> None:
    options = ("-p", "org-jobs.agents.write", "-s", "ALL", "--org", "acme")
    assert "orgId: there is no organisation 'acme'" in error_of(terminal, 2, "create", *options)
    create_organisation(
        {"id": "acme", "name": "Acme"},
        within=ALL_ORGANISATIONS,
        database=terminal.database,
        clock=SystemClock(),
        actor="cli",
    )
    result = create(terminal, *options)
    assert (result["orgId"], result["permissions"]) == ("acme", ["org-jobs.agents.write"])
    caller = caller_of(terminal, result["token"])
    assert caller is not None
    assert (caller.org_id, list(caller.grants)) == ("acme", [Permission.ORG_JOBS_AGENTS])
    output = terminal.run("tokens", "create", *options).out.splitlines()
    assert [line.split()[1:] for line in output if line.startswith("reaches")] == [
        ["all", "of", "acme"]
    ]
    assert (
        "permissions: must be enrichment, org-jobs or org-jobs.agents for a token of an organisation, not fiches"
        in error_of(terminal, 2, "create", *options, "-p", "fiches")
    )


def test_the_list_shows_the_reach_and_state_of_each_token(
    terminal: Terminal, on_terminal: Sized
) -> None:
    for options in (
        "-p fiches -p audits.write -s GROUP -g NORD -g SUD -n groups",
        "-p fiches -s SELF --crm-user-id 77",
        "-p * -s ALL -n all",
    ):
        create(terminal, *options.split())
    terminal.run("tokens", "revoke", "2")
    on_terminal(200, is_terminal=False)
    header, *rows = terminal.run("tokens", "list", "--all").out.splitlines()
    tokens = terminal.json("tokens", "list", "--all")["tokens"]
    assert re.split(r"  +", header.strip()) == [
        *("id", "name", "prefix", "state", "permissions", "reaches", "expires", "last used"),
    ]
    prefixes = [token["prefix"] for token in tokens]
    assert [re.split(r"  +", row.strip()) for row in rows] == [
        ["3", "all", prefixes[0], "active", "*", "every fiche", "never", "never"],
        ["2", "unnamed", prefixes[1], "revoked", "fiches.read", "CRM user 77", "never", "never"],
        [
            *("1", "groups", prefixes[2], "active", "fiches.read, audits.write"),
            *("groups NORD, SUD", "never", "never"),
        ],
    ]


def test_the_list_is_read_page_by_page(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PAGE", 2)
    for _ in range(5):
        create(terminal, "-p", "fiches", "-s", "ALL")
    listed = [token["id"] for token in terminal.json("tokens", "list")["tokens"]]
    assert listed == ["5", "4", "3", "2", "1"]
