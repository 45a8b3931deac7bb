"""GraphQL texts as they are sent: parsed and validated once, remembered by their text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphql import (
    DocumentNode,
    FragmentDefinitionNode,
    GraphQLError,
    GraphQLSchema,
    GraphQLSyntaxError,
    ListValueNode,
    Visitor,
    parse,
    validate,
    visit,
)

MOST_REMEMBERED = 500
MOST_TOKENS = 20_000


@dataclass(frozen=True)
class Document:
    """`longest_list` is the longest one written in the text itself. One with errors has nothing
    else."""

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
