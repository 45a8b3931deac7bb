"""Fiches: the CRM's sales records, their details and recordings, mirrored in our database."""
