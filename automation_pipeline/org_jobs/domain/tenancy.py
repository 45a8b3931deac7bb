"""How far somebody reaches among the organisations: one of them, or all. Every query is bound by it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Within:
    """`org_id` is None for whoever runs the whole system."""

    org_id: str | None

    def includes(self, org_id: str) -> bool:
        return self.org_id is None or self.org_id == org_id


EVERYWHERE = Within(None)
