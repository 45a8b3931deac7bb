"""The worker's loop beside its heartbeat: whoever notices first that a run is given back, the work
ends well."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing import worker as loop
from automation_pipeline.pricing.models.runs import LostRunClaimError
from automation_pipeline.pricing.ports import ApplyContext
from automation_pipeline.pricing.queries.runs import RunClaim
from automation_pipeline.pricing.rules.runs import WorkTarget
from automation_pipeline.pricing.worker import TargetWork, WaitForTargets
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.shop import FakeShop, storefront


class Ending(TargetWork):
    """Work that ends at once. The heartbeat misses the claim before the loop learns of the end."""

    def __init__(self, context: ApplyContext) -> None:
        super().__init__(RunClaim(1, 1), context)
        self.is_released, self.is_missed = threading.Event(), threading.Event()

    def keep(self) -> bool:
        if self.is_released.is_set():
            self.is_missed.set()
            raise LostRunClaimError("Released.")
        return True

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        self.is_released.set()
        assert self.is_missed.wait(20)
        return []


def test_a_heartbeat_that_misses_the_claim_first_does_not_spoil_the_end(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_AGAIN_SECONDS", 0.01)
    shop = FakeShop()
    context = ApplyContext(storefront(shop), database, clock, shop)
    assert asyncio.run(Ending(context).process()) is True
