"""The simulated CRM gateway: its endpoints in `gateway.py`, the sections of a fiche in
`sections.py`."""
