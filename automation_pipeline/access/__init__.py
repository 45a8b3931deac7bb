"""Access manages machine tokens: what a token may do, which fiches it reaches, and when it expires."""
