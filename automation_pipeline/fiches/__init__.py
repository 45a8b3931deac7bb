"""Fiches are the CRM's sales records. This package mirrors their sales lists, details and recordings."""
