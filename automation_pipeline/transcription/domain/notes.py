"""Lines of the workflow log about a run: by fiche, traced by the run's id."""

from collections.abc import Mapping

from automation_pipeline.core.notes import Note
from automation_pipeline.transcription.domain.run import Standing


def run_note(
    standing: Standing, message: str, *, level: str = "info", data: Mapping[str, object] | None = None
) -> Note:
    return fiche_note(standing.run_id, standing.fiche_id, message, level=level, data=data)


def fiche_note(
    run_id: str, fiche_id: str, message: str, *, level: str = "info", data: Mapping[str, object] | None = None
) -> Note:
    return Note("transcription", "fiche", fiche_id, run_id, message, level=level, data=data or {})
