"""A call's way through the shop: its limits, its points, and the operation itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import cast

from graphql import (
    ExecutionResult,
    GraphQLError,
    GraphQLSchema,
    OperationType,
    execute,  # pyright: ignore[reportUnknownVariableType]  its middleware is not typed to the end
)

from automation_pipeline.simulator.shop.asked import Asked, inputs_of
from automation_pipeline.simulator.shop.points import MOST_POINTS, MUTATION_POINTS, Pricing
from automation_pipeline.simulator.shop.resolving import Work, default
from automation_pipeline.simulator.shop.state import ShopState

MOST_INPUTS = 250
Answer = dict[str, object]


@dataclass(frozen=True)
class Till:
    """Answers calls, and takes the points for them."""

    shop: ShopState
    schema: GraphQLSchema

    def answer(self, asked: Asked) -> Answer:
        self.shop.calls[asked.kind] += 1
        refusal = self._refusal(asked)
        if refusal is not None:
            return {"errors": refusal}
        requested = self._requested(asked)
        if not self.shop.bucket.take(requested):
            return self._throttled(requested, self.shop.bucket.level())
        work = Work(self.shop.shelves)
        result = self._executed(asked, work)
        actual = _actual(asked, result, work)
        self.shop.bucket.give_back(requested - actual)
        answer: Answer = {"data": result.data}
        if result.errors:
            answer["errors"] = [_worded(error) for error in result.errors]
        return {**answer, **self._cost(requested, actual, self.shop.bucket.level())}

    def scripted(self, asked: Asked) -> Answer:
        """A refusal although there may be points: it reports one too few, and takes none."""
        requested = self._requested(asked)
        return self._throttled(requested, max(0.0, min(self.shop.bucket.level(), requested - 1)))

    def _refusal(self, asked: Asked) -> Sequence[Mapping[str, object]] | None:
        """The errors of a call that is not executed."""
        if asked.document.errors:
            return [error.formatted for error in asked.document.errors]
        if asked.operation is None:
            return [{"message": "No operation named " + repr(asked.operation_name)}]
        for name, length in inputs_of(asked):
            if length > MOST_INPUTS:
                message = f"The input array size of {length} is greater than the maximum allowed of {MOST_INPUTS}."
                return [
                    {
                        "message": message,
                        "path": [name],
                        "extensions": {"code": "MAX_INPUT_SIZE_EXCEEDED"},
                    }
                ]
        cost = self._requested(asked)
        if cost > MOST_POINTS and asked.operation.operation is OperationType.QUERY:
            message = f"Query cost is {cost}, which exceeds the single query max cost limit ({MOST_POINTS})."
            extensions = {"code": "MAX_COST_EXCEEDED", "cost": cost, "maxCost": MOST_POINTS}
            return [{"message": message, "extensions": extensions}]
        return None

    def _requested(self, asked: Asked) -> int:
        if asked.operation is None:
            return 0
        return Pricing(self.schema, asked.document.fragments, asked.variables).points(
            asked.operation
        )

    def _executed(self, asked: Asked, work: Work) -> ExecutionResult:
        assert asked.document.node  # noqa: S101 - it has an operation
        result = execute(
            self.schema,
            asked.document.node,
            context_value=work,
            variable_values=dict(asked.variables),
            operation_name=asked.operation_name,
            field_resolver=default,
            is_awaitable=lambda _: (
                False
            ),  # every look at a value costs time, and nothing here waits
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


def _actual(asked: Asked, result: ExecutionResult, work: Work) -> int:
    """Nothing for variables that do not fit the document: then there are no data, not even null
    ones."""
    if asked.operation and asked.operation.operation is OperationType.MUTATION:
        return MUTATION_POINTS * len(result.data or ())
    return work.points


def _worded(error: GraphQLError) -> Mapping[str, object]:
    document = dict(error.formatted)
    return document if error.path else {**document, "extensions": {"code": "INVALID_VARIABLE"}}
