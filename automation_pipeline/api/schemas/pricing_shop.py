"""The shop as the API shows it, and what pauses it."""

from datetime import datetime
from typing import Self

from pydantic import Field

from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.pricing.domain.circuit import Circuit, CircuitState
from automation_pipeline.pricing.store.shops import ShopStanding


class ShopPauseInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


class CircuitShown(JsonModel):
    """`until` is when an open circuit is tried again; the counts are those of the kind of call that has more."""

    state: CircuitState = CircuitState.CLOSED
    throttles: int = 0
    failures: int = 0
    until: Instant | None = None

    @classmethod
    def of(cls, circuit: Circuit) -> Self:
        return cls(state=circuit.state, throttles=circuit.throttles, failures=circuit.failures, until=circuit.until)


class BucketShown(JsonModel):
    available: float
    maximum: float
    restore_rate: float


class ShopShown(JsonModel):
    """`refusals` are when it last refused calls for coming too fast. A shop that was never called has no bucket."""

    shop: str = Field(examples=["example.myshopify.com"])
    circuit: CircuitShown = CircuitShown()
    bucket: BucketShown | None = None
    paused_at: Instant | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    refusals: tuple[Instant, ...] = ()

    @classmethod
    def of(cls, standing: ShopStanding) -> Self:
        return cls(
            shop=standing.shop,
            circuit=CircuitShown.of(standing.circuit),
            bucket=BucketShown.model_validate(vars(standing.bucket)),
            paused_at=standing.paused_at,
            paused_by=standing.paused_by,
            pause_reason=standing.pause_reason,
            refusals=tuple[datetime, ...](standing.refusals),
        )
