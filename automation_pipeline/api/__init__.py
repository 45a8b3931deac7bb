"""The HTTP API: one way into the same stages that the command line uses."""
