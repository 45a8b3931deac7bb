"""What a document asks for, in points: a mutation 10; a query one for each object that it may
return."""

from collections.abc import Iterator, Mapping
from typing import cast

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    get_named_type,
    value_from_ast_untyped,
)

MUTATION_POINTS, CONNECTION_POINTS, MOST_POINTS = 10, 2, 1000
_FREE = ("MoneyV2", "PageInfo", "ProductEdge", "ProductVariantEdge")
_Parent = GraphQLObjectType | GraphQLInterfaceType


def argument(node: FieldNode, name: str, variables: Mapping[str, object]) -> object:
    """What is given for it, whether in the text or as a variable."""
    given = next((one.value for one in node.arguments if one.name.value == name), None)
    return None if given is None else value_from_ast_untyped(given, dict(variables))


class Pricing:
    """Of one document that is valid. What is asked for twice under one name is one object."""

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
