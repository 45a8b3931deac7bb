"""How a fault rule changes an answer: pure, from a good response to a bad one."""

import json
from collections.abc import Callable, Mapping
from typing import cast

from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.fault_rules import FaultRule

ERROR_PAGE = b"<html><body><h1>The gateway is having a bad day</h1></body></html>"


def replacement(
    rule: FaultRule, error: Callable[[int], object], key: str = "detail"
) -> Response | None:
    """The answer that needs no real one, if the rule asks for such."""
    if rule.status is None or rule.body:
        return None
    return JSONResponse({key: error(rule.status)}, rule.status, _headers(rule))


def spoiled(
    response: Response, rule: FaultRule, spoils: Mapping[str, Callable[[bytes], bytes]]
) -> Response:
    """The response with the rule's status, header and body. The gate breaks answers off, not
    this."""
    media_type = response.headers.get("content-type")
    if spoil := spoils.get(rule.body or ""):
        body = spoil(bytes(response.body))
    else:
        body, media_type = _body(bytes(response.body), media_type, rule)
    return Response(body, rule.status or response.status_code, _headers(rule), media_type)


def _headers(rule: FaultRule) -> dict[str, str]:
    return {} if rule.retry_after is None else {"retry-after": str(rule.retry_after)}


def _body(body: bytes, media_type: str | None, rule: FaultRule) -> tuple[bytes, str | None]:
    is_json = (media_type or "").startswith("application/json")  # a stream of events is not
    match rule.body:
        case "truncated":
            return body[: len(body) // 2], media_type
        case "not_json":
            return ERROR_PAGE, "text/html"
        case "empty":
            return b"", media_type
        case "wrong_types" if is_json:
            return json.dumps(_mistyped(json.loads(body))).encode(), media_type
        case "success_false" if is_json:
            failed = {**json.loads(body), "success": False, "message": "Simulated failure."}
            return json.dumps(failed).encode(), media_type
        case _:
            return body, media_type


def _mistyped(value: object) -> object:
    """The same shape with every text in a list and every number and boolean as text."""
    if isinstance(value, dict):
        return {key: _mistyped(inner) for key, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_mistyped(inner) for inner in cast("list[object]", value)]
    if isinstance(value, str):
        return [value]
    return value if value is None else str(value)
