"""What the fields of the schema stand for. Every object that is handed out counts as a point in the
Work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from graphql import GraphQLError, GraphQLObjectType, GraphQLResolveInfo, GraphQLSchema

from automation_pipeline.simulator.shop.gids import (
    PRODUCT,
    VARIANT,
    NoGidError,
    cursor,
    number_behind,
    number_of,
    parts_of,
)
from automation_pipeline.simulator.shop.objects import (
    Costing,
    Fields,
    product_fields,
    shop_fields,
    variant_fields,
)
from automation_pipeline.simulator.shop.points import CONNECTION_POINTS
from automation_pipeline.simulator.shop.schema import drawn_up
from automation_pipeline.simulator.shop.shelves import Shelves, page
from automation_pipeline.simulator.shop.writing import Given, write

MOST_ON_A_PAGE = 250
Info = GraphQLResolveInfo


@dataclass
class Work:
    """One operation: on which catalogue, and the points it has come to so far."""

    shelves: Shelves
    points: int = 0


def playable() -> GraphQLSchema:
    schema = drawn_up()
    _resolve(
        schema,
        "QueryRoot",
        shop=_shop,
        productVariants=_variants,
        products=_products,
        node=_node,
        nodes=_nodes,
    )
    _resolve(schema, "QueryRoot", product=_node_of(PRODUCT), productVariant=_node_of(VARIANT))
    _resolve(schema, "Product", variants=_variants_of_product)
    for connection in ("ProductConnection", "ProductVariantConnection"):
        _resolve(schema, connection, nodes=_nodes_of_connection)
    _resolve(schema, "Mutation", productVariantsBulkUpdate=_bulk_update)
    return schema


def default(source: Fields, info: Info) -> object:
    value = source[info.field_name]
    if isinstance(value, Costing):
        _work(info).points += 1
    return value


def _resolve(schema: GraphQLSchema, type_name: str, **resolvers: Callable[..., object]) -> None:
    fields = cast("GraphQLObjectType", schema.type_map[type_name]).fields
    for name, resolver in resolvers.items():
        fields[name].resolve = resolver


def _work(info: Info) -> Work:
    return cast("Work", info.context)


def _shop(_root: object, info: Info) -> Fields:
    _work(info).points += 1
    return shop_fields(_work(info).shelves.sizes.currency)


def _node(_root: object, info: Info, id: str) -> Fields | None:  # noqa: A002 - named by the schema
    work = _work(info)
    try:
        kind, number = parts_of(id)
    except NoGidError as error:
        raise GraphQLError(str(error)) from error
    fields = _found(work.shelves, kind, number)
    work.points += fields is not None
    return fields


def _found(shelves: Shelves, kind: str, number: int) -> Fields | None:
    if kind == VARIANT and (variant := shelves.variants.get(number)):
        return variant_fields(variant, shelves.sizes.currency)
    if kind == PRODUCT and (product := shelves.products.get(number)):
        return product_fields(product)
    return None


def _node_of(kind: str) -> Callable[..., Fields | None]:
    def resolve(root: object, info: Info, id: str) -> Fields | None:  # noqa: A002 - named by the schema
        try:
            return _node(root, info, id) if number_of(id, kind) else None
        except NoGidError as error:
            raise GraphQLError(str(error)) from error

    return resolve


def _nodes(_root: object, info: Info, ids: list[str]) -> list[Fields | None]:
    return [_node(None, info, one) for one in ids]


def _variants(
    _root: object, info: Info, first: int | None = None, after: str | None = None
) -> Fields:
    shelves = _work(info).shelves
    return _connection(info, VARIANT, shelves.ids(), first, after)


def _products(
    _root: object, info: Info, first: int | None = None, after: str | None = None
) -> Fields:
    return _connection(info, PRODUCT, list(_work(info).shelves.products), first, after)


def _variants_of_product(
    product: Fields, info: Info, first: int | None = None, after: str | None = None
) -> Fields:
    of = number_of(cast("str", product["id"]), PRODUCT) or 0
    return _connection(info, VARIANT, _work(info).shelves.ids_of(of), first, after)


def _connection(
    info: Info, kind: str, ids: Sequence[int], first: int | None, after: str | None
) -> Fields:
    if first is None:
        raise GraphQLError("you must provide one of first or last")
    if not 0 <= first <= MOST_ON_A_PAGE:
        raise GraphQLError(f"first must be from 0 to {MOST_ON_A_PAGE}, not {first}")
    behind = number_behind(after) if after is not None else 0
    if behind is None:
        raise GraphQLError("Invalid cursor for current pagination sort.")
    shown, has_more = page(ids, behind, first)
    work = _work(info)
    work.points += CONNECTION_POINTS
    objects = [_found(work.shelves, kind, number) for number in shown]
    cursors = [cursor(number) for number in shown]
    return {
        "nodes": objects,
        "edges": [
            {"cursor": at, "node": Costing(one or {})}
            for at, one in zip(cursors, objects, strict=True)
        ],
        "pageInfo": {
            "hasNextPage": has_more,
            "hasPreviousPage": bool(ids) and ids[0] <= behind,
            "startCursor": cursors[0] if cursors else None,
            "endCursor": cursors[-1] if cursors else None,
        },
    }


def _nodes_of_connection(connection: Fields, info: Info) -> object:
    nodes = cast("list[Fields]", connection["nodes"])
    _work(info).points += len(nodes)
    return nodes


def _bulk_update(
    _root: object,
    info: Info,
    productId: str,  # noqa: N803 - named by the schema
    variants: list[Given],
    allowPartialUpdates: bool | None = False,  # noqa: N803 - named by the schema
) -> Fields:
    shelves = _work(info).shelves
    try:
        written = write(shelves, productId, variants, allow_partial=bool(allowPartialUpdates))
    except NoGidError as error:
        raise GraphQLError(str(error)) from error
    shown = [variant_fields(one, shelves.sizes.currency) for one in written.variants or ()]
    return {
        "product": None if written.product is None else product_fields(written.product),
        "productVariants": None if written.variants is None else shown,
        "userErrors": [
            {"code": error.code, "field": error.field, "message": error.message}
            for error in written.errors
        ],
    }
