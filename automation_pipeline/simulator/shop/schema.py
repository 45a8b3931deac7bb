"""The part of the Admin API's schema that is played here, and its amounts of money as scalars."""

from decimal import Decimal
from typing import cast

from graphql import GraphQLError, GraphQLScalarType, GraphQLSchema, build_schema

from automation_pipeline.simulator.shop.amounts import amount_of

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


def drawn_up() -> GraphQLSchema:
    """The schema, whose inputs of money arrive as Decimals. Nothing is resolved yet."""
    schema = build_schema(SDL)
    money = cast("GraphQLScalarType", schema.type_map["Money"])
    money.parse_value = _money
    return schema


def _money(value: object) -> Decimal:
    amount = amount_of(value)
    if amount is None:
        raise GraphQLError(f"Money must be a decimal number, not {str(value)[:50]!r}.")
    return amount
