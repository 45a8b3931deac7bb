"""The metadata of a day's audits in Dagster."""

from typing import Any

from automation_pipeline.audits.days import DayAudits, FailingPoint
from automation_pipeline.orchestration.days import audits_metadata

EMPTY: dict[str, Any] = {
    "configs": 1, "fiches": 0, "audited": 0, "by_niveau": {}, "mean_score": None, "non_compliant": 0, "failures": {},
    "steps": 0, "steps_failed": 0, "citations": 0, "citations_removed": 0, "failing_points": (),
}  # fmt: skip


def metadata_of(**counts: Any) -> dict[str, Any]:
    return {
        name: value.value for name, value in audits_metadata(DayAudits(**EMPTY | counts)).items()
    }


def test_a_day_without_audits_has_numbers_and_no_tables() -> None:
    day = metadata_of()
    assert (day["wanted"], day["audited"], day["coverage"]) == (0, 0, 1.0)
    assert not {"by_niveau", "failing_points", "failures", "mean_score", "note"} & set(day)


def test_metadata_tables_are_ordered_and_show_the_share() -> None:
    points = (FailingPoint("Welcome", "Name given", 3, 4), FailingPoint("Closing", "Thanks", 1, 8))
    day = metadata_of(
        by_niveau={"EXCELLENT": 1, "REJET": 2},
        failures={"No key": 1, "No calls": 5},
        failing_points=points,
    )
    assert day["by_niveau"].splitlines() == [
        "| niveau | audits |",
        "|---|---|",
        "| EXCELLENT | 1 |",
        "| REJET | 2 |",
    ]
    assert day["failures"].splitlines()[2:] == ["| No calls | 5 |", "| No key | 1 |"]
    assert day["failing_points"].splitlines()[2:] == [
        "| Welcome | Name given | 3 | 4 | 75% |",
        "| Closing | Thanks | 1 | 8 | 12% |",
    ]


def test_control_point_names_are_escaped_in_tables() -> None:
    day = metadata_of(failing_points=(FailingPoint("Step", "a | b\nand c", 1, 1),))
    assert day["failing_points"].splitlines()[2:] == [r"| Step | a \| b and c | 1 | 1 | 100% |"]
