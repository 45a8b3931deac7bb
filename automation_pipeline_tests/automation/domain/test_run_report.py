"""The phases of a run by the marks that it has set."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.automation.domain.run_report import PhaseSpan, phase_spans
from automation_pipeline_tests.tables import every_case

AT = [datetime(2026, 2, 4, 3, 0, tzinfo=UTC) + timedelta(seconds=n) for n in range(4)]
SELECTION, FETCHING = PhaseSpan("selection", AT[0], AT[1]), PhaseSpan("fetching", AT[1], AT[2])


@every_case(
    ("marks", "spans"),
    [
        ((None, None, None), (PhaseSpan("selection", AT[0], None),)),
        ((None, None, AT[3]), (PhaseSpan("selection", AT[0], None),)),
        ((AT[1], None, None), (SELECTION, PhaseSpan("fetching", AT[1], None))),
        ((AT[1], AT[2], None), (SELECTION, FETCHING, PhaseSpan("transcribing and auditing", AT[2], None))),
        ((AT[1], AT[2], AT[3]), (SELECTION, FETCHING, PhaseSpan("transcribing and auditing", AT[2], AT[3]))),
    ],
)
def test_a_phase_begins_where_the_one_before_ended(
    marks: tuple[datetime | None, datetime | None, datetime | None], spans: tuple[PhaseSpan, ...]
) -> None:
    assert phase_spans(AT[0], *marks) == spans
