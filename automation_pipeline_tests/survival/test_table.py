"""The table says what runs survived, and does not adorn itself with what never met one."""

from automation_pipeline_tests.survival.plan import Kind, Round
from automation_pipeline_tests.survival.rounds import Outcome, Suffered
from automation_pipeline_tests.survival.table import document, table


def test_a_fault_that_came_when_its_run_was_over_is_told_of_and_not_counted() -> None:
    suffered = [
        Suffered(Kind.API, 3, recovery_seconds=2.0),
        Suffered(Kind.CLOCK, 90, late=True, recovery_seconds=0.0),
    ]
    outcome = Outcome(Round(1, []), run_id=1, status="completed", suffered=suffered)
    result = document([outcome], 60)
    assert (result["injected"], result["late"]) == (1, 1)
    assert list(result["faults"]) == ["api"]
    assert "messages alone: 1" in table([outcome], 60)


def test_faults_of_a_run_with_a_violation_were_not_survived() -> None:
    outcome = Outcome(
        Round(1, []), suffered=[Suffered(Kind.API, 3)], violations=["run 1 has not ended"]
    )
    assert document([outcome], 60)["faults"]["api"]["survived"] == 0
    assert "1 violations" in table([outcome], 60)
