"""GraphQL requests: parsed documents, their variables, and their cost in points."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLSyntaxError,
    InlineFragmentNode,
    ListValueNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    Visitor,
    get_named_type,
    get_operation_ast,
    parse,
    validate,
    value_from_ast_untyped,
    visit,
)

from automation_pipeline.simulator.shop.catalogue import PRODUCT, NoGidError, number_of

MOST_REMEMBERED = 500
MOST_TOKENS = 20_000


@dataclass(frozen=True)
class Document:
    """A parsed document. `longest_list` is the length of the longest list in its text. A document with errors has no
    other fields."""

    node: DocumentNode | None = None
    errors: Sequence[GraphQLError] = ()
    fragments: Mapping[str, FragmentDefinitionNode] = field(
        default_factory=dict[str, FragmentDefinitionNode]
    )
    longest_list: int = 0


class Documents:
    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema
        self._known: dict[str, Document] = {}

    def read(self, text: str) -> Document:
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            known = self._known[text] = self._read(text)
        return known

    def _read(self, text: str) -> Document:
        try:
            node = parse(text, max_tokens=MOST_TOKENS)
            errors = validate(self._schema, node)
        except GraphQLSyntaxError as error:
            return Document(errors=[error])
        except RecursionError:
            return Document(errors=[GraphQLError("The document is nested too deeply.")])
        if errors:
            return Document(errors=errors)
        fragments = {
            one.name.value: one
            for one in node.definitions
            if isinstance(one, FragmentDefinitionNode)
        }
        lists = _Lists()
        visit(node, lists)
        return Document(node, (), fragments, lists.longest)


class _Lists(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.longest = 0

    def enter_list_value(self, node: ListValueNode, *_place: object) -> None:
        self.longest = max(self.longest, len(node.values))


MUTATION_POINTS, CONNECTION_POINTS, MOST_POINTS = 10, 2, 1000
_FREE = ("MoneyV2", "PageInfo", "ProductEdge", "ProductVariantEdge")
_Parent = GraphQLObjectType | GraphQLInterfaceType


def argument(node: FieldNode, name: str, variables: Mapping[str, object]) -> object:
    """The value of an argument, from the text or from the variables."""
    given = next((one.value for one in node.arguments if one.name.value == name), None)
    return None if given is None else value_from_ast_untyped(given, dict(variables))


class Pricing:
    """The cost of a valid document. A field that occurs twice under one name counts once."""

    def __init__(
        self,
        schema: GraphQLSchema,
        fragments: Mapping[str, FragmentDefinitionNode],
        variables: Mapping[str, object],
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._variables = variables

    def points(self, operation: OperationDefinitionNode) -> int:
        if operation.operation is OperationType.MUTATION:
            return MUTATION_POINTS * len(operation.selection_set.selections)
        root = self._schema.query_type
        return self._of_all(self._fields(root, operation.selection_set)) if root else 0

    def _of_all(self, fields: Iterator[tuple[_Parent, FieldNode]]) -> int:
        named: dict[str, list[tuple[_Parent, FieldNode]]] = {}
        for parent, node in fields:
            named.setdefault((node.alias or node.name).value, []).append((parent, node))
        return sum(self._of_one(parts) for parts in named.values())

    def _of_one(self, parts: list[tuple[_Parent, FieldNode]]) -> int:
        parent, node = parts[0]
        field = parent.fields.get(node.name.value)
        kind = cast("GraphQLNamedType | None", get_named_type(field.type)) if field else None
        if not isinstance(kind, _Parent):
            return 0
        inner = self._of_all(
            one
            for _, part in parts
            if part.selection_set
            for one in self._fields(kind, part.selection_set)
        )
        if kind.name.endswith("Connection"):
            first = argument(node, "first", self._variables)
            return CONNECTION_POINTS + max(0, first if isinstance(first, int) else 0) * inner
        if kind.name in _FREE:
            return inner
        ids = argument(node, "ids", self._variables)
        return (1 + inner) * (len(cast("list[object]", ids)) if isinstance(ids, list) else 1)

    def _fields(
        self, parent: _Parent, selections: SelectionSetNode
    ) -> Iterator[tuple[_Parent, FieldNode]]:
        for selection in selections.selections:
            if isinstance(selection, FieldNode):
                yield parent, selection
                continue
            part = selection
            if isinstance(selection, FragmentSpreadNode):
                part = self._fragments[selection.name.value]
            if isinstance(part, FragmentDefinitionNode | InlineFragmentNode):
                named = (
                    self._schema.get_type(part.type_condition.name.value)
                    if part.type_condition
                    else parent
                )
                yield from self._fields(cast("_Parent", named), part.selection_set)


READ, CATALOGUE, WRITE = KINDS = ("read", "catalogue", "write")
_CATALOGUE_FIELDS = {"productVariants", "products"}


class UnreadableError(Exception):
    """The body is not a GraphQL request; the answer is 400."""


@dataclass(frozen=True)
class GraphqlRequest:
    """`kind` is read, catalogue or write. `item` is the kind, or the product's number for a
    mutation."""

    document: Document
    operation: OperationDefinitionNode | None = None
    operation_name: str | None = None
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    item: str = READ
    kind: str = READ


def read_request(body: bytes, documents: Documents) -> GraphqlRequest:
    text, variables, name = _parts(body)
    document = documents.read(text)
    operation = get_operation_ast(document.node, name) if document.node else None
    if operation is None:
        return GraphqlRequest(document, operation_name=name, variables=variables)
    known = {**_defaults(operation), **variables}
    fields = _root_fields(operation)
    if operation.operation is OperationType.MUTATION:
        return GraphqlRequest(
            document, operation, name, known, _product(fields, known) or WRITE, WRITE
        )
    kind = CATALOGUE if _CATALOGUE_FIELDS & {one.name.value for one in fields} else READ
    return GraphqlRequest(document, operation, name, known, kind, kind)


def inputs_of(request: GraphqlRequest) -> Iterator[tuple[str, int]]:
    """The lengths of the lists in a request, with the names of their variables."""
    yield "", request.document.longest_list
    for name, value in request.variables.items():
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
