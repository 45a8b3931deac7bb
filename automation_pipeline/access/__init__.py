"""Access manages machine tokens: what a token may do, which fiches it can reach, and when it expires."""
