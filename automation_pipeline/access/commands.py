"""`automation tokens`: create, list and revoke the tokens of the HTTP API."""

from collections.abc import Sequence
from typing import Annotated, cast

import typer

from automation_pipeline.access.models import MAX_LIFE_DAYS, token_document
from automation_pipeline.access.tokens import create_token, list_tokens, revoke_token
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, every, operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    print_facts,
    print_json,
    print_result,
    say,
)
from automation_pipeline.core.json_model import LARGEST_ID

app = command_group("Manage the tokens of programs that use the HTTP API.")


# The client does not repeat this request: the secret of a token whose response is lost is gone.
@operation("POST /api/admin/tokens", repeatable=False)
def issue_token(services: Services, given: Document) -> Document:
    from automation_pipeline.org_jobs.queries.organisations import has_organisation  # noqa: PLC0415  only new tokens need it

    issued = create_token(
        given,
        database=services.database,
        clock=services.clock,
        organisation_exists=has_organisation,
    )
    return {**token_document(issued.token, services.clock.now()), "token": issued.secret}


@operation("GET /api/admin/tokens")
def tokens(
    services: Services, *, include_inactive: bool, limit: int, offset: int
) -> Sequence[Document]:
    now = services.clock.now()
    with services.database.reading() as session:
        found = list_tokens(session, active_at=None if include_inactive else now)
    return [token_document(token, now) for token in found[offset : offset + limit]]


@operation("DELETE /api/admin/tokens/{token_id}")
def revoke_stored_token(services: Services, token_id: int) -> Document:
    token = revoke_token(token_id, database=services.database, clock=services.clock)
    return token_document(token, services.clock.now())


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
        help="The permissions of the token; repeat the option, or separate them by commas. `automation` and "
        "`automation.read` allow reading, `automation.write` allows changes too; `*` is every permission, "
        "`*.read` reads everything. The permissions are fiches, "
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
        help="The fiches that the token can reach: ALL, those of some groups (GROUP) or those of one CRM user (SELF).",
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
            help="The organisation of the token. The token reaches all of that organisation (--scope ALL) "
            "and nothing else. It can have org-jobs, org-jobs.agents and enrichment.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", "-n", help="A name for people.")] = "unnamed",
    groupe: Annotated[
        list[str] | None,
        typer.Option(
            "--groupe", "-g", help="A group of the scope GROUP; repeat the option for several."
        ),
    ] = None,
    crm_user_id: Annotated[str | None, typer.Option(help="The CRM user of the scope SELF.")] = None,
    expires_in_days: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_LIFE_DAYS, help="Without it, the token is valid until it is revoked."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and show it once: the database stores only its hash.

    A program sends it as `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`. For example, a token
    that can run automations and read audits:

    automation tokens create --name nightly --permission automation.write --permission audits
    --scope ALL

    A token for the agents of an organisation:

    automation tokens create --org acme --name agents --permission org-jobs.agents.write --scope ALL"""
    issued = issue_token(
        {
            "name": name,
            "permissions": [word for words in permission for word in words.split(",")],
            "scope": scope,
            "groupes": groupe or [],
            "crmUserId": crm_user_id,
            "orgId": org,
            "expiresInDays": expires_in_days,
        }
    )
    if as_json:
        print_json({"id": issued["id"], "token": issued["token"], **issued})
        return
    say(str(issued["token"]))
    print_facts(
        {
            "id": issued["id"],
            "name": issued["name"],
            "permissions": _permissions(issued),
            "reaches": _reach(issued),
            "expires": issued["expiresAt"] or "never",
        }
    )
    say("Keep the token: it is not shown again.")


@app.command("list")
def list_(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Show expired and revoked tokens too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the tokens by their prefixes, newest first. The last use is recorded at most once per minute."""
    found = list(every(tokens, by="offset", include_inactive=everything))
    if as_json:
        print_json({"tokens": found})
    else:
        TOKENS.print(found)


@app.command()
def revoke(token_id: TokenId, *, as_json: AsJson = False) -> None:
    """Revoke a token at once and permanently. Safe to repeat."""
    token = revoke_stored_token(token_id)
    print_result(token, f"Token {token['id']} is revoked: {token['name']}.", as_json=as_json)


def _permissions(token: Document) -> str:
    return ", ".join(cast("Sequence[str]", token["permissions"]))


def _reach(token: Document) -> str:
    if token["orgId"] is not None:
        return f"all of {token['orgId']}"
    groups = ", ".join(cast("Sequence[str]", token["groupes"]))
    fiches = {"ALL": "every fiche", "GROUP": f"groups {groups}"}
    return fiches.get(str(token["scope"]), f"CRM user {token['crmUserId']}")


TOKENS = Columns[Document](
    {
        "id": lambda token: token["id"],
        "name": lambda token: token["name"],
        "prefix": lambda token: token["prefix"],
        "state": lambda token: token["state"],
        "permissions": _permissions,
        "reaches": _reach,
        "expires": lambda token: token["expiresAt"] or "never",
        "last used": lambda token: token["lastUsedAt"] or "never",
    }
)
