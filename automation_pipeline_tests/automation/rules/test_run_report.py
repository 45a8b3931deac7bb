"""The phases of a run by the marks that it has set."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.automation.queries.reports import ReportedPhase, phase_spans
from automation_pipeline_tests.tables import every_case

AT = [datetime(2026, 2, 4, 3, 0, tzinfo=UTC) + timedelta(seconds=n) for n in range(4)]
SELECTION, FETCHING = (
    ReportedPhase("selection", AT[0], AT[1]),
    ReportedPhase("fetching", AT[1], AT[2]),
)


@every_case(
    ("marks", "spans"),
    [
        ((None, None, None), (ReportedPhase("selection", AT[0], None),)),
        ((None, None, AT[3]), (ReportedPhase("selection", AT[0], None),)),
        ((AT[1], None, None), (SELECTION, ReportedPhase("fetching", AT[1], None))),
        (
            (AT[1], AT[2], None),
            (SELECTION, FETCHING, ReportedPhase("transcribing and auditing", AT[2], None)),
        ),
        (
            (AT[1], AT[2], AT[3]),
            (SELECTION, FETCHING, ReportedPhase("transcribing and auditing", AT[2], AT[3])),
        ),
    ],
)
def test_a_phase_begins_where_the_one_before_ended(
    marks: tuple[datetime | None, datetime | None, datetime | None],
    spans: tuple[ReportedPhase, ...],
) -> None:
    assert phase_spans(AT[0], *marks) == spans
