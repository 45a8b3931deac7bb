"""Keys differ exactly where the things that they name differ."""

from datetime import UTC, datetime

from automation_pipeline.pricing import events as keys

AT = datetime(2026, 5, 4, 2, 0, 0, 500, tzinfo=UTC)


def test_each_call_of_each_cycle_has_its_own_key() -> None:
    made = {
        keys.apply_key("r", "t", cycle, attempts) for cycle in range(3) for attempts in range(4)
    }
    assert len(made) == 12
    assert keys.apply_key("r1", "t1", 1, 2) == "r1:t1:apply:1.2"


def test_keys_are_written_as_the_contract_has_them() -> None:
    assert keys.rollback_key("r1", "t1", 1) == "r1:t1:rollback:1"
    assert keys.mismatch_key("r1", "t1", "5m") == "r1:t1:mismatch:5m"
    assert keys.run_event_key("r1", "completed", 0) == "r1:completed:0"
    assert keys.request_key("r1", 2) == "rule-run-r1-2"
    assert keys.schedule_key("7", AT) == "rule-schedule-7-1777860000000"
    assert keys.promotion_end_key("r1", AT) == "rule-run-r1-end-1777860000000"
    assert keys.circuit_key("shop", AT) == "circuit:shop:1777860000000"
