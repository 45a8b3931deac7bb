"""The ledger with too many items and arrivals, with calls in progress while it is cleared, and with failed calls."""

import pytest

from automation_pipeline.simulator import ledger as module
from automation_pipeline.simulator.ledger import Ledger


def test_totals_stay_exact_when_items_and_arrivals_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 2)
    ledger = Ledger(("audio",))
    for item in ("a", "b", "c", "a"):
        with ledger.call("audio", item) as call:
            call.status = 200
    summary = ledger.routes["audio"].summary(None, times=False)
    assert (summary["calls"], summary["statuses"], summary["items"]) == (
        4,
        {"200": 4},
        {"a": 2, "b": 1},
    )


def test_a_call_in_progress_while_the_ledger_is_cleared_is_not_counted() -> None:
    ledger = Ledger(("audio",))
    with ledger.call("audio", "a"):
        ledger.clear()
    assert ledger.summary() == Ledger(("audio",)).summary()


def test_a_call_that_fails_is_no_longer_in_progress() -> None:
    ledger = Ledger(("audio",))
    with pytest.raises(RuntimeError), ledger.call("audio", "a"):
        raise RuntimeError
    assert ledger.routes["audio"].in_flight == 0
