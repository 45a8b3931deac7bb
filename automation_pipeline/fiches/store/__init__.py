"""Queries of the CRM mirror: writing details, writing sales lists, and what people and stages ask of both."""
