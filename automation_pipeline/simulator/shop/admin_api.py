"""The HTTP endpoint of Shopify's Admin API, with its rate limit."""

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import cast
from uuid import uuid4

from graphql import (
    ExecutionResult,
    GraphQLError,
    GraphQLSchema,
    OperationType,
    execute,  # pyright: ignore[reportUnknownVariableType]  its middleware is partially typed
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.faults import THROTTLED
from automation_pipeline.simulator.shop.requests import (
    MOST_POINTS,
    MUTATION_POINTS,
    READ,
    Documents,
    GraphqlRequest,
    Pricing,
    UnreadableError,
    inputs_of,
    read_request,
)
from automation_pipeline.simulator.shop.resolvers import (
    OperationContext,
    default,
    executable_schema,
)
from automation_pipeline.simulator.shop.state import ShopState

MOST_INPUTS = 250
Answer = dict[str, object]


@dataclass(frozen=True)
class RequestExecutor:
    """Executes calls and charges their points."""

    shop: ShopState
    schema: GraphQLSchema

    def answer(self, request: GraphqlRequest) -> Answer:
        self.shop.calls[request.kind] += 1
        refusal = self._refusal(request)
        if refusal is not None:
            return {"errors": refusal}
        requested = self._requested(request)
        if not self.shop.bucket.take(requested):
            return self._throttled(requested, self.shop.bucket.level())
        work = OperationContext(self.shop.catalogue)
        result = self._executed(request, work)
        actual = _actual(request, result, work)
        self.shop.bucket.give_back(requested - actual)
        answer: Answer = {"data": result.data}
        if result.errors:
            answer["errors"] = [_worded(error) for error in result.errors]
        return {**answer, **self._cost(requested, actual, self.shop.bucket.level())}

    def scripted(self, request: GraphqlRequest) -> Answer:
        """Refuse a call because of a fault rule. The answer reports one point too few, and no point is charged."""
        requested = self._requested(request)
        return self._throttled(requested, max(0.0, min(self.shop.bucket.level(), requested - 1)))

    def _refusal(self, request: GraphqlRequest) -> Sequence[Mapping[str, object]] | None:
        """The errors of a call that is not executed."""
        if request.document.errors:
            return [error.formatted for error in request.document.errors]
        if request.operation is None:
            return [{"message": "No operation named " + repr(request.operation_name)}]
        for name, length in inputs_of(request):
            if length > MOST_INPUTS:
                message = f"The input array size of {length} is greater than the maximum allowed of {MOST_INPUTS}."
                return [
                    {
                        "message": message,
                        "path": [name],
                        "extensions": {"code": "MAX_INPUT_SIZE_EXCEEDED"},
                    }
                ]
        cost = self._requested(request)
        if cost > MOST_POINTS and request.operation.operation is OperationType.QUERY:
            message = f"Query cost is {cost}, which exceeds the single query max cost limit ({MOST_POINTS})."
            extensions = {"code": "MAX_COST_EXCEEDED", "cost": cost, "maxCost": MOST_POINTS}
            return [{"message": message, "extensions": extensions}]
        return None

    def _requested(self, request: GraphqlRequest) -> int:
        if request.operation is None:
            return 0
        return Pricing(self.schema, request.document.fragments, request.variables).points(
            request.operation
        )

    def _executed(self, request: GraphqlRequest, work: OperationContext) -> ExecutionResult:
        assert request.document.node  # noqa: S101 - it has an operation
        result = execute(
            self.schema,
            request.document.node,
            context_value=work,
            variable_values=dict(request.variables),
            operation_name=request.operation_name,
            field_resolver=default,
            is_awaitable=lambda _: False,  # checking each value takes time, and no resolver waits
        )
        return cast("ExecutionResult", result)

    def _throttled(self, requested: int, available: float) -> Answer:
        error = {"message": "Throttled", "extensions": {"code": "THROTTLED"}}
        return {"errors": [error], **self._cost(requested, None, available)}

    def _cost(self, requested: int, actual: int | None, available: float) -> Answer:
        bucket = self.shop.bucket
        status = {
            "maximumAvailable": bucket.maximum,
            "currentlyAvailable": floor(available),
            "restoreRate": bucket.restore_rate,
        }
        cost = {
            "requestedQueryCost": requested,
            "actualQueryCost": actual,
            "throttleStatus": status,
        }
        return {"extensions": {"cost": cost}}


def _actual(request: GraphqlRequest, result: ExecutionResult, work: OperationContext) -> int:
    """The points that a call costs. They are 0 if the variables do not fit the document."""
    if request.operation and request.operation.operation is OperationType.MUTATION:
        return MUTATION_POINTS * len(result.data or ())
    return work.points


def _worded(error: GraphQLError) -> Mapping[str, object]:
    document = dict(error.formatted)
    return document if error.path else {**document, "extensions": {"code": "INVALID_VARIABLE"}}


GRAPHQL = "shop.graphql"
INVALID_TOKEN = "[API] Invalid API key or access token (unrecognized login or wrong password)"  # noqa: S105 - a message
MESSAGES = {
    401: INVALID_TOKEN,
    402: "The shop is frozen until its bill is paid.",
    403: "This action requires the merchant's approval for the scope write_products.",
    404: "Not Found",
    423: "The shop is locked.",
    429: "Exceeded the calls allowed to this client. Try again later.",
    503: "The shop is temporarily unavailable.",
}
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}|unstable")


def endpoints(token: str, shop: ShopState) -> list[Endpoint]:
    provider = _Provider(token, shop)
    return [
        Endpoint(
            name=GRAPHQL,
            path="/admin/api/{version}/graphql.json",
            handler=provider.answer,
            item=_item,
            methods=("POST",),
            refuse=provider.refuse,
            read_body=provider.read_body,
            error=lambda status: MESSAGES.get(status, f"Simulated answer {status}."),
            error_key="errors",
            replacements={THROTTLED: provider.throttled},
            headers=lambda: {"x-request-id": str(uuid4())},
        )
    ]


class _Provider:
    def __init__(self, token: str, shop: ShopState) -> None:
        schema = executable_schema()
        self._token = token
        self._documents = Documents(schema)
        self._executor = RequestExecutor(shop, schema)

    def refuse(self, request: Request) -> Response | None:
        if not _VERSION.fullmatch(request.path_params["version"]):
            return JSONResponse({"errors": MESSAGES[404]}, 404)
        given = request.headers.get("x-shopify-access-token", "")
        if not hmac.compare_digest(given.encode("latin-1"), self._token.encode()):
            return JSONResponse({"errors": INVALID_TOKEN}, 401)
        return None

    async def read_body(self, request: Request) -> None:
        try:
            request.state.graphql = read_request(await request.body(), self._documents)
        except UnreadableError as error:
            request.state.graphql = error

    async def answer(self, request: Request) -> Response:
        graphql = cast("GraphqlRequest | UnreadableError", request.state.graphql)
        return (
            _refused(graphql)
            if isinstance(graphql, UnreadableError)
            else _json(self._executor.answer(graphql))
        )

    async def throttled(self, request: Request) -> Response:
        graphql = cast("GraphqlRequest | UnreadableError", request.state.graphql)
        return (
            _refused(graphql)
            if isinstance(graphql, UnreadableError)
            else _json(self._executor.scripted(graphql))
        )


def _item(request: Request) -> str:
    graphql = cast("GraphqlRequest | UnreadableError", request.state.graphql)
    return READ if isinstance(graphql, UnreadableError) else graphql.item


def _refused(error: UnreadableError) -> Response:
    return JSONResponse({"errors": str(error)}, 400)


def _json(answer: Answer) -> Response:
    return Response(json.dumps(answer, ensure_ascii=False), media_type="application/json")
