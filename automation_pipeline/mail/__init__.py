"""E-mail: the adapter that hands messages to a mail server."""
