"""The HTTP API over the same use cases as the command line."""
