"""Keys that make one thing one thing."""


def lock_key(siren: str) -> str:
    return f"company_enrichment:{siren}"
