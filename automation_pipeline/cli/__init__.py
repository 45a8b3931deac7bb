"""The command line `automation`. The commands of a package are in the package itself, and call the same
use cases as its HTTP endpoints."""

import time

# The start time of the command, before it imports hundreds of modules.
STARTED_AT = time.monotonic()
