"""The CRM gateway as the outside world plays it: its endpoints in `gateway.py`, the sections of a
fiche beside it."""
