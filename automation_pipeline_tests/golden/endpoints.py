"""Writes docs/endpoints.md from the routes and the table of permissions (`make docs`)."""

import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import get_type_hints

from fastapi.routing import APIRoute

from automation_pipeline.api.app import ROUTERS
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.permissions import RULES, Rule, ScopeCheck

HEAD = """# Endpoints

This page lists the endpoints of the HTTP API by subject. [api.md](api.md) explains how to call them, and
`/openapi.json` describes every field. `make docs` writes this page from `automation_pipeline/api/`.

* *Permission*: what the caller needs. *any*: valid credentials are enough. *none*: no credentials are needed.
* *Scope*: what the API checks for callers with a scope narrower than `ALL` ([security.md](security.md)).
  * *path*: the object in the path must be in scope; otherwise the answer is 404.
  * *body*: the objects that the body names must be in scope.
  * *list*: the list contains only objects in scope.
  * *organisation*: a token of an organisation sees only that organisation; all other callers need `ALL`.
* *Key*: whether the endpoint accepts an `Idempotency-Key`.
"""
TABLE = "\n## {subject}\n| Method | Path | Permission | Scope | Key | What it does |\n|---|---|---|---|---|---|\n"
SCOPES: Mapping[ScopeCheck, str] = {
    ScopeCheck.BY_PATH: "path",
    ScopeCheck.BY_QUERY: "list",
    ScopeCheck.BY_BODY: "body",
    ScopeCheck.BY_ORGANISATION: "organisation",
    ScopeCheck.NOTHING: "",
}


def endpoints_page() -> str:
    return HEAD + "".join(_tables())


def _tables() -> Iterator[str]:
    first = {subject: number for number, (subject, _) in reversed(list(enumerate(_rows())))}
    in_order = sorted(_rows(), key=lambda row: first[row[0]])
    for subject, rows in groupby(in_order, key=itemgetter(0)):
        yield TABLE.format(subject=subject.capitalize())
        yield from (row for _, row in rows)


def _rows() -> Iterator[tuple[str, str]]:
    """Each with its tag."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in sorted(route.methods or ()):
                yield str(route.tags[0]), _row(method, route)


def _row(method: str, route: APIRoute) -> str:
    rule = RULES[method, route.path]
    words = " ".join(route.description.split()).replace("|", "\\|")
    cells = (method, f"`{route.path}`", _permission(rule), SCOPES[rule.scoped], _key(route), words)
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def _permission(rule: Rule) -> str:
    if rule.public:
        return "none"
    if rule.permission is None:
        return "any"
    own = f" (of one's own `{rule.own}.{rule.action}`)" if rule.own else ""
    return f"`{rule.permission}.{rule.action}`{own}"


def _key(route: APIRoute) -> str:
    return (
        "yes" if OncePerKey in get_type_hints(route.endpoint, include_extras=True).values() else ""
    )


if __name__ == "__main__":
    sys.stdout.write(endpoints_page())
