"""The operators' command line: `automation`. One module a noun; they call the same stages as every other edge."""
