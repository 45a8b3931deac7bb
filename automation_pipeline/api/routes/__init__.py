"""The endpoints, one module a subject. Paths are written whole; who may call them is in api/rules.py."""
