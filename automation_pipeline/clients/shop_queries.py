"""What the shop is asked, in its own language."""

CATALOGUE = """
query Catalogue($first: Int!, $after: String) {
  shop { currencyCode }
  productVariants(first: $first, after: $after) {
    pageInfo { hasNextPage endCursor }
    nodes {
      id sku barcode title price compareAtPrice inventoryQuantity
      inventoryItem { unitCost { amount currencyCode } }
      product { id title handle vendor productType tags status }
    }
  }
}
"""

PRICES = """
query Prices($ids: [ID!]!) {
  shop { currencyCode }
  nodes(ids: $ids) { ... on ProductVariant { id price compareAtPrice } }
}
"""

WRITE = """
mutation Write($productId: ID!, $variants: [ProductVariantsBulkInput!]!) {
  productVariantsBulkUpdate(productId: $productId, variants: $variants, allowPartialUpdates: true) {
    productVariants { id price compareAtPrice }
    userErrors { field message code }
  }
}
"""

WHO = "query Who { shop { currencyCode } }"
