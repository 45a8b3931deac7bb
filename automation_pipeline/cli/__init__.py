"""The operators' command line `automation`. Each package has its own commands, which call the same
use cases as the HTTP API."""

import time

# The start time of the command, before it loads hundreds of modules.
STARTED_AT = time.monotonic()
