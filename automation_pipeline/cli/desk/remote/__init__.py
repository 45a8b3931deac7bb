"""Commands done elsewhere: by the HTTP API of another machine."""
