"""How the worker goes about a shop; what of it is configuration."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """`longest_pause_seconds` is how long a worker stays for what will be due: for longer it leaves, and comes back.
    A lease outlives every call, so that whoever takes a run over finds no call of the former holder under way."""

    calls_at_once: int = 5
    call_seconds: float = 30.0
    lease_seconds: float = 120.0
    longest_pause_seconds: float = 90.0
    reconciles: bool = True
    # The zone whose days the guardrails' daily budgets are of.
    time_zone: str = "Europe/Paris"
