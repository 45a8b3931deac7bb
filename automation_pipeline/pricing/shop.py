"""The shop as people see it: its status, pause and resume."""

from datetime import datetime
from typing import Self

from pydantic import Field

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.pricing.queries.runs import file_run_requests
from automation_pipeline.pricing.queries.shops import ShopStatus, close_circuit, set_pause
from automation_pipeline.pricing.queries.transitions import runs_without_worker
from automation_pipeline.pricing.rules.pacing import Circuit, CircuitState
from automation_pipeline.storage.database import Database


class CircuitShown(JsonModel):
    """`until` is when an open circuit is tried again; the counts are those of the kind of call that
    has more."""

    state: CircuitState = CircuitState.CLOSED
    throttles: int = 0
    failures: int = 0
    until: Instant | None = None

    @classmethod
    def of(cls, circuit: Circuit) -> Self:
        return cls(
            state=circuit.state,
            throttles=circuit.throttles,
            failures=circuit.failures,
            until=circuit.until,
        )


class BucketShown(JsonModel):
    available: float
    maximum: float
    restore_rate: float


class ShopShown(JsonModel):
    """`refusals` are when it last refused calls for coming too fast. A shop that was never called
    has no bucket."""

    shop: str = Field(examples=["example.myshopify.com"])
    circuit: CircuitShown = CircuitShown()
    bucket: BucketShown | None = None
    paused_at: Instant | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    refusals: tuple[Instant, ...] = ()

    @classmethod
    def of(cls, standing: ShopStatus) -> Self:
        return cls(
            shop=standing.shop,
            circuit=CircuitShown.of(standing.circuit),
            bucket=BucketShown.model_validate(vars(standing.bucket)),
            paused_at=standing.paused_at,
            paused_by=standing.paused_by,
            pause_reason=standing.pause_reason,
            refusals=tuple[datetime, ...](standing.refusals),
        )


MAX_REASON_LENGTH = 1000


def pause_shop(
    shop: str, *, database: Database, actor: str, reason: str | None = None
) -> ShopStatus:
    """Workers stop before their next calls. Safe to repeat: the first pause lasts, with the newest
    reason."""
    if reason is not None and len(reason) > MAX_REASON_LENGTH:
        raise InvalidInputError(
            "Invalid pause data", (("reason", f"must have at most {MAX_REASON_LENGTH} characters"),)
        )
    with database.transaction() as session:
        return set_pause(session, shop, by=actor, reason=reason)


def resume_shop(shop: str, *, database: Database, clock: Clock) -> ShopStatus:
    """Write prices in a shop again: its runs go on where they were. An open circuit is closed with
    it."""
    with database.transaction() as session:
        close_circuit(session, shop)
        standing = set_pause(session, shop, by=None, reason=None)
        session.flush()
        file_run_requests(session, runs_without_worker(session, shop=shop), clock.now())
        return standing
