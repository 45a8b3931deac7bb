"""How far a fiche's calls are."""

from automation_pipeline.fiches.documents import (
    CallTranscription,
    transcription_document,
    unknown_transcription_document,
)
from automation_pipeline_tests.tables import every_case


@every_case(
    ("total", "done", "pending", "percentage", "complete"),
    [
        (3, 2, 1, 67, False),
        (3, 3, 0, 100, True),
        (3, 0, 3, 0, False),
        (0, 0, 0, 100, True),
        (200, 199, 1, 100, False),
    ],
)
def test_the_counts_add_up(
    total: int, done: int, pending: int, percentage: int, complete: bool
) -> None:
    assert transcription_document(CallTranscription(total, done)) == {
        "total": total, "transcribed": done, "pending": pending, "percentage": percentage, "isComplete": complete,
        "lastTranscribedAt": None,
    }  # fmt: skip


def test_of_an_unknown_fiche_nothing_is_complete() -> None:
    told = unknown_transcription_document()
    assert (told["total"], told["percentage"], told["isComplete"]) == (0, 0, False)
