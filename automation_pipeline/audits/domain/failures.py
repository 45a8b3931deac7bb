"""The sentences in which an audit fails or ends incomplete; people and scripts know them."""

from automation_pipeline.audits.domain.coverage import Coverage, steps_sentence


def not_found(fiche_id: str) -> str:
    return f"Fiche {fiche_id} not found (404)"


def nothing_to_judge(fiche_id: str, recordings: int, transcribed: int) -> str:
    """Why the timeline is empty."""
    if recordings == 0:
        return f"No recordings found for fiche {fiche_id} (cannot run audit)"
    if transcribed == 0:
        return f"No transcriptions available for fiche {fiche_id} ({transcribed}/{recordings})"
    return f"No usable transcribed recordings available for fiche {fiche_id} (timeline empty)"


def transcripts_missing(fiche_id: str, coverage: Coverage, cause: str | None) -> str:
    sentence = f"Audit incomplete: {coverage.sentence}"
    if not coverage.heard:
        sentence += f". {nothing_to_judge(fiche_id, coverage.recordings, 0)}"
    return f"{sentence}: {cause}" if cause else sentence


def steps_missing(judged: int, steps: int, cause: str) -> str:
    """One cause stands for all."""
    return f"Audit incomplete: {steps_sentence(judged, steps)}: {cause}"
