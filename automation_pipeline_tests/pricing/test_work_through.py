"""The worker's loop beside its heartbeat: whoever notices first that a run is given back, the work
ends well."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from automation_pipeline.pricing import worker as loop
from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.ports import ApplyContext
from automation_pipeline.pricing.queries.runs import LostRunClaimError
from automation_pipeline.pricing.rules.runs import ApplyTerms, WorkTarget
from automation_pipeline.pricing.worker import WaitForTargets, process_targets
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.shop import FakeShop, storefront


class Ending:
    """Work that is over at once; its hold is missed by the heartbeat before the loop hears of the
    end."""

    def __init__(self) -> None:
        self.is_given_back, self.is_missed = threading.Event(), threading.Event()

    def begin(self) -> ApplyTerms:
        return ApplyTerms(OnDrift.REFUSE, None)

    def keep(self) -> bool:
        if self.is_given_back.is_set():
            self.is_missed.set()
            raise LostRunClaimError("Given back.")
        return True

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        self.is_given_back.set()
        assert self.is_missed.wait(20)
        return []


def test_a_heartbeat_that_misses_the_hold_first_does_not_spoil_the_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_AGAIN_SECONDS", 0.01)
    shop = FakeShop()
    assert (
        asyncio.run(
            process_targets(Ending(), context=ApplyContext(shop, storefront(shop), database))
        )
        is True
    )
