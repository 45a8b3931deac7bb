"""The GraphQL schema of the shop and the resolvers of its fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from graphql import (
    GraphQLError,
    GraphQLObjectType,
    GraphQLResolveInfo,
    GraphQLScalarType,
    GraphQLSchema,
    build_schema,
)

from automation_pipeline.simulator.shop.catalogue import (
    MOST,
    PRODUCT,
    VARIANT,
    Catalogue,
    NoGidError,
    Product,
    Variant,
    amount_of,
    amount_text,
    cursor,
    decimals_of,
    fits,
    gid,
    number_of,
    number_of_cursor,
    page,
    parts_of,
    with_decimals,
)
from automation_pipeline.simulator.shop.requests import CONNECTION_POINTS

SDL = """
schema { query: QueryRoot  mutation: Mutation }

"A decimal number, as a text."
scalar Decimal
"An amount in the shop's currency, as a text."
scalar Money
scalar CurrencyCode

interface Node { id: ID! }

enum ProductStatus { ACTIVE ARCHIVED DRAFT }

type QueryRoot {
  shop: Shop!
  productVariants(first: Int, after: String): ProductVariantConnection!
  products(first: Int, after: String): ProductConnection!
  product(id: ID!): Product
  productVariant(id: ID!): ProductVariant
  node(id: ID!): Node
  nodes(ids: [ID!]!): [Node]!
}

type Shop implements Node { id: ID!  name: String!  currencyCode: CurrencyCode! }

type MoneyV2 { amount: Decimal!  currencyCode: CurrencyCode! }

type PageInfo { hasNextPage: Boolean!  hasPreviousPage: Boolean!  startCursor: String  endCursor: String }

type Product implements Node {
  id: ID!
  title: String!
  handle: String!
  vendor: String!
  productType: String!
  tags: [String!]!
  status: ProductStatus!
  variants(first: Int, after: String): ProductVariantConnection!
}
type ProductEdge { cursor: String!  node: Product! }
type ProductConnection { nodes: [Product!]!  edges: [ProductEdge!]!  pageInfo: PageInfo! }

type InventoryItem implements Node { id: ID!  sku: String  unitCost: MoneyV2 }
type ProductVariant implements Node {
  id: ID!
  sku: String
  barcode: String
  title: String!
  displayName: String!
  price: Money!
  compareAtPrice: Money
  inventoryQuantity: Int
  inventoryItem: InventoryItem!
  product: Product!
}
type ProductVariantEdge { cursor: String!  node: ProductVariant! }
type ProductVariantConnection { nodes: [ProductVariant!]!  edges: [ProductVariantEdge!]!  pageInfo: PageInfo! }

input ProductVariantsBulkInput { id: ID  price: Money  compareAtPrice: Money }

enum ProductVariantsBulkUpdateUserErrorCode {
  BLANK
  GREATER_THAN_OR_EQUAL_TO
  INVALID_INPUT
  MUST_BE_FOR_THIS_PRODUCT
  NEGATIVE_PRICE_VALUE
  PRODUCT_DOES_NOT_EXIST
  PRODUCT_SUSPENDED
  PRODUCT_VARIANT_DOES_NOT_EXIST
  PRODUCT_VARIANT_ID_MISSING
}
type ProductVariantsBulkUpdateUserError {
  code: ProductVariantsBulkUpdateUserErrorCode
  field: [String!]
  message: String!
}
type ProductVariantsBulkUpdatePayload {
  product: Product
  productVariants: [ProductVariant!]
  userErrors: [ProductVariantsBulkUpdateUserError!]!
}

type Mutation {
  productVariantsBulkUpdate(
    productId: ID!
    variants: [ProductVariantsBulkInput!]!
    allowPartialUpdates: Boolean = false
  ): ProductVariantsBulkUpdatePayload
}
"""


def schema_with_money() -> GraphQLSchema:
    """The schema without resolvers. Amounts of money are parsed as Decimals."""
    schema = build_schema(SDL)
    money = cast("GraphQLScalarType", schema.type_map["Money"])
    money.parse_value = _money
    return schema


def _money(value: object) -> Decimal:
    amount = amount_of(value)
    if amount is None:
        raise GraphQLError(f"Money must be a decimal number, not {str(value)[:50]!r}.")
    return amount


Fields = dict[str, object]
SHOP_NAME = "Maison du Simulateur"


class CostedFields(Fields):
    """The fields of a nested object, which costs a point."""


def shop_fields(currency: str) -> Fields:
    return {"__typename": "Shop", "id": gid("Shop", 1), "name": SHOP_NAME, "currencyCode": currency}


def product_fields(product: Product) -> CostedFields:
    return CostedFields(
        {
            "__typename": PRODUCT,
            "id": gid(PRODUCT, product.id),
            "title": product.title,
            "handle": f"produit-{product.id}",
            "vendor": product.vendor,
            "productType": product.product_type,
            "tags": product.tags,
            "status": product.status,
        }
    )


def variant_fields(variant: Variant, currency: str) -> Fields:
    cost = (
        None
        if variant.unit_cost is None
        else {"amount": amount_text(variant.unit_cost), "currencyCode": currency}
    )
    return {
        "__typename": VARIANT,
        "id": gid(VARIANT, variant.id),
        "sku": variant.sku,
        "barcode": variant.barcode,
        "title": variant.title,
        "displayName": f"{variant.product.title} - {variant.title}",
        "price": amount_text(variant.price),
        "compareAtPrice": amount_text(variant.compare_at),
        "inventoryQuantity": variant.inventory,
        "inventoryItem": CostedFields(
            {"id": gid("InventoryItem", variant.id), "sku": variant.sku, "unitCost": cost}
        ),
        "product": product_fields(variant.product),
    }


Given = Mapping[str, object]  # the fields of one variant that the caller sent


@dataclass(frozen=True)
class UserError:
    code: str
    field: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class UpdateResult:
    """`product` is None if it does not exist; `variants` is None if nothing was written."""

    product: Product | None
    variants: Sequence[Variant] | None
    errors: Sequence[UserError]


def write(
    catalogue: Catalogue, product_gid: str, given: Sequence[Given], *, allow_partial: bool
) -> UpdateResult:
    """Raises NoGidError for an invalid id."""
    product = catalogue.products.get(number_of(product_gid, PRODUCT) or 0)
    if product is None:
        missing = UserError("PRODUCT_DOES_NOT_EXIST", ("productId",), "Product does not exist")
        return UpdateResult(None, None, (missing,))
    decimals = decimals_of(catalogue.sizes.currency)
    good: dict[int, Given] = {}
    errors: list[UserError] = []
    for index, one in enumerate(given):
        found = _variant_of(catalogue, product, one)
        if isinstance(found, int) and found in good:
            found = ("INVALID_INPUT", "id", "Product variant is named twice")
        fault = found if not isinstance(found, int) else _price_fault(one, decimals)
        if isinstance(found, int) and fault is None:
            good[found] = one
        elif isinstance(fault, tuple):
            code, field, message = fault
            errors.append(UserError(code, ("variants", str(index), field), message))
    if errors and not (allow_partial and good):
        return UpdateResult(product, None, errors)
    return UpdateResult(
        product,
        [_set(catalogue, variant_id, one, decimals) for variant_id, one in good.items()],
        errors,
    )


Fault = tuple[str, str, str]  # code, field, message


def _variant_of(catalogue: Catalogue, product: Product, given: Given) -> int | Fault:
    named = given.get("id")
    if not isinstance(named, str):
        return "PRODUCT_VARIANT_ID_MISSING", "id", "Product variant is missing ID attribute"
    variant = catalogue.variants.get(number_of(named, VARIANT) or 0)
    if variant is None:
        return "PRODUCT_VARIANT_DOES_NOT_EXIST", "id", "Product variant does not exist"
    if variant.product is not product:
        return "MUST_BE_FOR_THIS_PRODUCT", "id", "Product variant does not belong to the product"
    return variant.id


def _price_fault(given: Given, decimals: int) -> Fault | None:
    price, compared = given.get("price"), given.get("compareAtPrice")
    if "price" in given and price is None:
        return "BLANK", "price", "Price can't be blank"
    if isinstance(price, Decimal) and price < 0:
        return "NEGATIVE_PRICE_VALUE", "price", "Price must be greater than or equal to 0"
    if isinstance(compared, Decimal) and compared < 0:
        return (
            "GREATER_THAN_OR_EQUAL_TO",
            "compareAtPrice",
            "Compare at price must be greater than or equal to 0",
        )
    for field, amount in (("price", price), ("compareAtPrice", compared)):
        if isinstance(amount, Decimal) and not (amount < MOST and fits(amount, decimals)):
            return (
                "INVALID_INPUT",
                field,
                f"The amount must be below {MOST:f} and have at most {decimals} decimals",
            )
    return None


def _set(catalogue: Catalogue, variant_id: int, given: Given, decimals: int) -> Variant:
    """Change the prices that the caller sent. A compare-at price of null is cleared."""
    before = catalogue.variants[variant_id]
    price, compared = given.get("price"), given.get("compareAtPrice")
    is_price = isinstance(price, Decimal)
    if not is_price and "compareAtPrice" not in given:
        return before
    compare_at = with_decimals(compared, decimals) if isinstance(compared, Decimal) else None
    return catalogue.price(
        variant_id,
        with_decimals(price, decimals) if is_price else before.price,
        compare_at if "compareAtPrice" in given else before.compare_at,
        "api",
    )


MOST_ON_A_PAGE = 250
Info = GraphQLResolveInfo


@dataclass
class OperationContext:
    """The context of one operation: the catalogue, and the points so far."""

    catalogue: Catalogue
    points: int = 0


def executable_schema() -> GraphQLSchema:
    schema = schema_with_money()
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
    if isinstance(value, CostedFields):
        _work(info).points += 1
    return value


def _resolve(schema: GraphQLSchema, type_name: str, **resolvers: Callable[..., object]) -> None:
    fields = cast("GraphQLObjectType", schema.type_map[type_name]).fields
    for name, resolver in resolvers.items():
        fields[name].resolve = resolver


def _work(info: Info) -> OperationContext:
    return cast("OperationContext", info.context)


def _shop(_root: object, info: Info) -> Fields:
    _work(info).points += 1
    return shop_fields(_work(info).catalogue.sizes.currency)


def _node(_root: object, info: Info, id: str) -> Fields | None:  # noqa: A002 - named by the schema
    work = _work(info)
    try:
        kind, number = parts_of(id)
    except NoGidError as error:
        raise GraphQLError(str(error)) from error
    fields = _found(work.catalogue, kind, number)
    work.points += fields is not None
    return fields


def _found(catalogue: Catalogue, kind: str, number: int) -> Fields | None:
    if kind == VARIANT and (variant := catalogue.variants.get(number)):
        return variant_fields(variant, catalogue.sizes.currency)
    if kind == PRODUCT and (product := catalogue.products.get(number)):
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
    catalogue = _work(info).catalogue
    return _connection(info, VARIANT, catalogue.ids(), first, after)


def _products(
    _root: object, info: Info, first: int | None = None, after: str | None = None
) -> Fields:
    return _connection(info, PRODUCT, list(_work(info).catalogue.products), first, after)


def _variants_of_product(
    product: Fields, info: Info, first: int | None = None, after: str | None = None
) -> Fields:
    of = number_of(cast("str", product["id"]), PRODUCT) or 0
    return _connection(info, VARIANT, _work(info).catalogue.ids_of(of), first, after)


def _connection(
    info: Info, kind: str, ids: Sequence[int], first: int | None, after: str | None
) -> Fields:
    if first is None:
        raise GraphQLError("you must provide one of first or last")
    if not 0 <= first <= MOST_ON_A_PAGE:
        raise GraphQLError(f"first must be from 0 to {MOST_ON_A_PAGE}, not {first}")
    last_id = number_of_cursor(after) if after is not None else 0
    if last_id is None:
        raise GraphQLError("Invalid cursor for current pagination sort.")
    shown, has_more = page(ids, last_id, first)
    work = _work(info)
    work.points += CONNECTION_POINTS
    objects = [_found(work.catalogue, kind, number) for number in shown]
    cursors = [cursor(number) for number in shown]
    return {
        "nodes": objects,
        "edges": [
            {"cursor": at, "node": CostedFields(one or {})}
            for at, one in zip(cursors, objects, strict=True)
        ],
        "pageInfo": {
            "hasNextPage": has_more,
            "hasPreviousPage": bool(ids) and ids[0] <= last_id,
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
    catalogue = _work(info).catalogue
    try:
        written = write(catalogue, productId, variants, allow_partial=bool(allowPartialUpdates))
    except NoGidError as error:
        raise GraphQLError(str(error)) from error
    shown = [variant_fields(one, catalogue.sizes.currency) for one in written.variants or ()]
    return {
        "product": None if written.product is None else product_fields(written.product),
        "productVariants": None if written.variants is None else shown,
        "userErrors": [
            {"code": error.code, "field": error.field, "message": error.message}
            for error in written.errors
        ],
    }
