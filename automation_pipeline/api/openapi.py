"""The OpenAPI document."""

import json
from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from automation_pipeline.api.permissions import RULES

SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A machine token, or a user's access token.",
    },
    "key": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "A machine token.",
    },
}
# For `openapi_extra` of endpoints that treat an empty parameter as missing.
EMPTY_IS_NOT_GIVEN = {"x-empty-parameters": "not given"}
_PACKAGE = "automation_pipeline__"
_UNUSED, _UNUSED_DESCRIPTION = {"HTTPValidationError", "ValidationError"}, "Validation Error"

Node = dict[str, Any]


def document(app: FastAPI) -> Node:
    """Build the OpenAPI document. It has the schemas of bodies as components, the error responses of
    this API, and the permission of each operation."""
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = schema.setdefault("components", {})
    schemas: Node = components.setdefault("schemas", {})
    for name in _UNUSED:
        schemas.pop(name, None)
    paths = cast("Mapping[str, Mapping[str, Node]]", schema["paths"])
    operations = (
        (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    )
    for method, path, operation in operations:
        if operation["responses"].get("422", {}).get("description") == _UNUSED_DESCRIPTION:
            del operation["responses"]["422"]
        rule = RULES[method, path]
        operation["security"] = [] if rule.public else [{name: []} for name in SCHEMES]
        if rule.permission is not None:
            operation["x-permission"] = f"{rule.permission}.{rule.action}"
        if EMPTY_IS_NOT_GIVEN.items() <= operation.items():
            for parameter in operation["parameters"]:
                parameter["allowEmptyValue"] = True
        for content in operation.get("requestBody", {}).get("content", {}).values():
            schemas.update(content["schema"].pop("$defs", {}))
    components["securitySchemes"] = SCHEMES
    app.openapi_schema = _with_unique_names(schema)
    return app.openapi_schema


def _with_unique_names(schema: Node) -> Node:
    """Rename schemas that have the same name in several packages: `PricingRunState`,
    `OrgJobsRunState`."""
    names: dict[str, str] = {}
    for name in schema["components"]["schemas"]:
        if name.startswith(_PACKAGE):  # FastAPI adds the whole module to ambiguous names
            package, *_, own = name.removeprefix(_PACKAGE).split("__")
            names[name] = "".join(word.capitalize() for word in package.split("_")) + own
    text = json.dumps(schema)
    for name, unique in names.items():
        text = text.replace(f'"{name}"', f'"{unique}"').replace(f'/{name}"', f'/{unique}"')
    document: Node = json.loads(text)
    for unique in names.values():
        document["components"]["schemas"][unique]["title"] = unique
    return document
