"""The states of an enrichment, with every legal move; all others are refused."""

from enum import StrEnum

from automation_pipeline.core.state_machine import StateMachine


class EnrichmentStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    STALE = "STALE"


S = EnrichmentStatus

# A fresh SUCCESS that a user refreshes goes through STALE. A job that its required source makes wait goes back to
# PENDING, or to STALE where there is a snapshot.
ENRICHMENT = StateMachine(
    name="enrichment",
    moves={
        S.PENDING: frozenset({S.RUNNING}),
        S.RUNNING: frozenset({S.SUCCESS, S.PARTIAL, S.FAILED, S.PENDING, S.STALE}),
        S.SUCCESS: frozenset({S.STALE}),
        S.PARTIAL: frozenset({S.STALE, S.RUNNING}),
        S.FAILED: frozenset({S.RUNNING}),
        S.STALE: frozenset({S.RUNNING}),
    },
)
