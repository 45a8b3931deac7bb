"""A call's body as it is read: which operation of which document, with which variables, and what it
is about."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from graphql import (
    FieldNode,
    OperationDefinitionNode,
    OperationType,
    get_operation_ast,
    value_from_ast_untyped,
)

from automation_pipeline.simulator.shop.documents import Document, Documents
from automation_pipeline.simulator.shop.gids import PRODUCT, NoGidError, number_of
from automation_pipeline.simulator.shop.points import argument

READ, CATALOGUE, WRITE = KINDS = ("read", "catalogue", "write")
_CATALOGUE_FIELDS = {"productVariants", "products"}


class UnreadableError(Exception):
    """The body is no call at all: it is answered with 400."""


@dataclass(frozen=True)
class Asked:
    """`kind` is one of read, catalogue and write. `item` is the kind, or of a mutation its
    product's number."""

    document: Document
    operation: OperationDefinitionNode | None = None
    operation_name: str | None = None
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    item: str = READ
    kind: str = READ


def read_asked(body: bytes, documents: Documents) -> Asked:
    text, variables, name = _parts(body)
    document = documents.read(text)
    operation = get_operation_ast(document.node, name) if document.node else None
    if operation is None:
        return Asked(document, operation_name=name, variables=variables)
    known = {**_defaults(operation), **variables}
    fields = _root_fields(operation)
    if operation.operation is OperationType.MUTATION:
        return Asked(document, operation, name, known, _product(fields, known) or WRITE, WRITE)
    kind = CATALOGUE if _CATALOGUE_FIELDS & {one.name.value for one in fields} else READ
    return Asked(document, operation, name, known, kind, kind)


def inputs_of(asked: Asked) -> Iterator[tuple[str, int]]:
    """The lists of a call and their lengths: those among its variables by their names."""
    yield "", asked.document.longest_list
    for name, value in asked.variables.items():
        if isinstance(value, list):
            yield name, len(cast("list[object]", value))


def _parts(body: bytes) -> tuple[str, Mapping[str, object], str | None]:
    try:
        posted: object = json.loads(body)
    except (ValueError, RecursionError):
        raise UnreadableError("The body is not JSON.") from None
    given = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    text, variables, name = given.get("query"), given.get("variables"), given.get("operationName")
    if not isinstance(text, str) or not text.strip():
        raise UnreadableError("Required parameter missing or invalid: query.")
    if not isinstance(variables, dict | None) or not isinstance(name, str | None):
        raise UnreadableError("variables must be an object, and operationName a text.")
    return text, cast("dict[str, object]", variables or {}), name or None


def _defaults(operation: OperationDefinitionNode) -> Mapping[str, object]:
    return {
        one.variable.name.value: value_from_ast_untyped(one.default_value)
        for one in operation.variable_definitions
        if one.default_value is not None
    }


def _root_fields(operation: OperationDefinitionNode) -> list[FieldNode]:
    return [one for one in operation.selection_set.selections if isinstance(one, FieldNode)]


def _product(fields: list[FieldNode], variables: Mapping[str, object]) -> str | None:
    for one in fields:
        named = argument(one, "productId", variables)
        if isinstance(named, str):
            try:
                number = number_of(named, PRODUCT)
            except NoGidError:
                return None
            return None if number is None else str(number)
    return None
