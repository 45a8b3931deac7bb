"""The table counts the faults that runs survived, without late ones."""

from automation_pipeline_tests.survival.plan import Kind, Round
from automation_pipeline_tests.survival.rounds import InjectedFault, Outcome
from automation_pipeline_tests.survival.table import document, table


def test_a_late_fault_is_reported_and_not_counted() -> None:
    injected = [
        InjectedFault(Kind.API, 3, recovery_seconds=2.0),
        InjectedFault(Kind.CLOCK, 90, late=True, recovery_seconds=0.0),
    ]
    outcome = Outcome(Round(1, []), run_id=1, status="completed", injected=injected)
    result = document([outcome], 60)
    assert (result["injected"], result["late"]) == (1, 1)
    assert list(result["faults"]) == ["api"]
    assert "end of their run: 1" in table([outcome], 60)


def test_faults_of_a_run_with_a_violation_were_not_survived() -> None:
    outcome = Outcome(
        Round(1, []), injected=[InjectedFault(Kind.API, 3)], violations=["run 1 has not ended"]
    )
    assert document([outcome], 60)["faults"]["api"]["survived"] == 0
    assert "1 violations" in table([outcome], 60)
