"""The operators' command line: `automation`. One module a noun; they call the same stages as every
other edge."""

import time

# When the command began: it loads hundreds of modules before it does anything.
STARTED_AT = time.monotonic()
