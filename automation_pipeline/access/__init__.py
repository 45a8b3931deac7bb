"""The room of machine tokens: made once, kept hashed, revoked at once."""
