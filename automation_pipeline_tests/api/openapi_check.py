"""Validates every response against the OpenAPI document."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
from fastapi import FastAPI


def openapi_check(api: FastAPI) -> Callable[[httpx.Response], None]:
    """A response hook for the `event_hooks` of a client."""
    document, paths = _described(api)

    def check(response: httpx.Response) -> None:
        response.read()
        path = next(path for pattern, path in paths.items() if pattern.fullmatch(response.url.path))
        responses: dict[str, Any] = document["paths"][path][response.request.method.lower()][
            "responses"
        ]
        assert str(response.status_code) in responses, (
            f"{response.request.method} {path}: {response.text}"
        )
        documented = responses[str(response.status_code)].get("content")
        if documented is None:
            assert response.content == b"", f"{response.request.method} {path}"
            return
        schema = documented["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        faults = [
            str(fault)
            for fault in jsonschema_rs.Draft202012Validator(whole).iter_errors(response.json())
        ]
        assert faults == [], f"{response.request.method} {path}"

    return check


@cache
def _described(api: FastAPI) -> tuple[dict[str, Any], Mapping[re.Pattern[str], str]]:
    document = api.openapi()
    return document, {
        re.compile(re.sub(r"\{\w+\}", "[^/]+", path)): path for path in _in_order(document)
    }


def _in_order(document: Mapping[str, Any]) -> list[str]:
    """Orders paths as the application does: actions, fixed paths, then paths with parameters."""
    return sorted(document["paths"], key=lambda path: (":" not in path, path))
