"""Shopify's Admin API in GraphQL: a catalogue whose prices can be read and written, and a bucket of
points."""
