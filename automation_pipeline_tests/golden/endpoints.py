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

Everything that the HTTP API answers, in the order of its subjects; [api.md](api.md) explains how to call it, and
`/openapi.json` has every field. This page is written by `make docs` from `automation_pipeline/api/`.

*Permission*: what the caller needs; *any*: valid credentials; *none*: not even those. *Scope*: how a scope narrower
than `ALL` is kept ([security.md](security.md)): what the *path* names must be in reach, else it is a 404; what the
*body* names must be; of a *list* only what is in reach is shown; of *organisations* a token of one sees that one
only, and all others need `ALL`. *Key*: takes an `Idempotency-Key`.
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
    first = {subject: place for place, (subject, _) in reversed(list(enumerate(_rows())))}
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
