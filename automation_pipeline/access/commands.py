"""`automation tokens`: create, list and revoke the tokens of the HTTP API."""

from datetime import datetime
from typing import Annotated

import typer

from automation_pipeline.access.models import MAX_LIFE_DAYS, ApiToken, token_document
from automation_pipeline.access.tokens import IssuedToken
from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import AsJson, print_facts, print_json, print_table, screen
from automation_pipeline.core.access import Scope
from automation_pipeline.core.json_model import LARGEST_ID

app = command_group("Let other programs use the HTTP API: make tokens, and revoke them.")

TokenId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The token's id, as `automation tokens list` shows it."
    ),
]
Permissions = Annotated[
    list[str],
    typer.Option(
        "--permission",
        "-p",
        help="What the token may do; repeat it, or separate by commas. `automation` and `automation.read` let it "
        "look, `automation.write` act too; `*` is everything, `*.read` to look at everything. There are fiches, "
        "audits, audit-configs, automation, recordings, transcriptions, products, chat, realtime, pricing, "
        "pricing.runs, pricing.policies, org-jobs, org-jobs.agents, organisations, enrichment, admin.users, "
        "admin.roles and admin.permissions.",
    ),
]
ScopeName = Annotated[
    str,
    typer.Option(
        "--scope",
        "-s",
        help="Which fiches it reaches: ALL, those of some groups (GROUP) or those of one CRM user (SELF).",
    ),
]


@app.command()
def create(
    *,
    permission: Permissions,
    scope: ScopeName,
    org: Annotated[
        str | None,
        typer.Option(
            help="The organisation that it belongs to: of that it reaches all (--scope ALL), and nothing beyond. It "
            "may have org-jobs, org-jobs.agents and enrichment.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", "-n", help="What people will know it by.")
    ] = "unnamed",
    groupe: Annotated[
        list[str] | None,
        typer.Option("--groupe", "-g", help="A group of the scope GROUP; repeat it for several."),
    ] = None,
    crm_user_id: Annotated[str | None, typer.Option(help="The CRM user of the scope SELF.")] = None,
    expires_in_days: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_LIFE_DAYS, help="Without it the token is good until revoked."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and show it, this once: only its hash is stored.

    A program sends it as `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`. For example, one that
    may run everything and see what became of it:

    automation tokens create --name nightly --permission automation.write --permission audits
    --scope ALL

    And one for the agents of an organisation:

    automation tokens create --org acme --name agents --permission org-jobs.agents.write --scope ALL
    """
    client = open_client()
    given = {
        "name": name,
        "permissions": [word for words in permission for word in words.split(",")],
        "scope": scope,
        "groupes": groupe or [],
        "crmUserId": crm_user_id,
        "orgId": org,
        "expiresInDays": expires_in_days,
    }
    issued = client.tokens.create(given)
    document = token_document(issued.token, client.clock.now())
    if as_json:
        print_json({"id": document["id"], "token": issued.secret, **document})
        return
    _print_issued(issued, document["expiresAt"])


@app.command("list")
def list_(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Show expired and revoked tokens too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the tokens, newest first, by how they begin. The last use is noted once a minute at
    most."""
    client = open_client()
    tokens, now = client.tokens.listed(everything=everything), client.clock.now()
    if as_json:
        print_json({"tokens": [token_document(token, now) for token in tokens]})
    else:
        columns = ("id", "name", "begins", "state", "may", "reaches", "expires", "last used")
        print_table(columns, (_row(token, now) for token in tokens))


@app.command()
def revoke(token_id: TokenId, *, as_json: AsJson = False) -> None:
    """Put an end to a token, at once and for good. Safe to repeat."""
    client = open_client()
    token = client.tokens.revoke(token_id)
    if as_json:
        print_json(token_document(token, client.clock.now()))
    else:
        _print(f"Token {token.id} is revoked: {token.name}.")


def _print_issued(issued: IssuedToken, expires: object) -> None:
    _print(issued.secret)
    print_facts(
        {
            "id": issued.token.id,
            "name": issued.token.name,
            "may": ", ".join(issued.token.permissions),
            "reaches": _reach(issued.token),
            "expires": expires or "never",
        }
    )
    _print("Keep the token: it is not shown again.")


def _row(token: ApiToken, now: datetime) -> tuple[object, ...]:
    document = token_document(token, now)
    may = ", ".join(token.permissions)
    times = (document["expiresAt"] or "never", document["lastUsedAt"] or "never")
    return (token.id, token.name, token.prefix, document["state"], may, _reach(token), *times)


def _reach(token: ApiToken) -> str:
    if token.org_id is not None:
        return f"all of {token.org_id}"
    whose = {Scope.ALL: "every fiche", Scope.GROUP: f"groups {', '.join(token.groupes)}"}
    return whose.get(token.scope) or f"CRM user {token.crm_user_id}"


def _print(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
