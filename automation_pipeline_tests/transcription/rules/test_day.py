"""How the transcripts of a day are judged."""

from automation_pipeline.transcription.models import DayTranscripts
from automation_pipeline.transcription.rules import COVERAGE_CHECK, judge_transcripts
from automation_pipeline_tests.tables import every_case


@every_case(
    ("recordings", "transcribed", "asked", "passed", "grave"),
    [
        (100, 95, True, True, False),
        (100, 94, True, False, False),
        (0, 0, True, True, False),
        (0, 0, False, False, True),
        (3, 3, False, False, True),
    ],
)
def test_nearly_all_recordings_of_a_day_that_was_asked_for_are_transcribed(
    recordings: int, transcribed: int, asked: bool, passed: bool, grave: bool
) -> None:
    finding = judge_transcripts(DayTranscripts(recordings, transcribed, 1.0, {}), asked=asked)
    assert (finding.check, finding.passed, finding.grave) == (COVERAGE_CHECK, passed, grave)
