"""The words in which an audit fails before a step is judged; people and scripts know them."""


def not_found(fiche_id: str) -> str:
    return f"Fiche {fiche_id} not found (404)"


def nothing_to_judge(fiche_id: str, recordings: int, transcribed: int, unheard: str | None = None) -> str:
    """Why the timeline is empty; `unheard` is why nobody could listen, if it was tried."""
    if recordings == 0:
        return f"No recordings found for fiche {fiche_id} (cannot run audit)"
    if transcribed == 0:
        known = f"No transcriptions available for fiche {fiche_id} ({transcribed}/{recordings})"
        return f"{known}: {unheard}" if unheard else known
    return f"No usable transcribed recordings available for fiche {fiche_id} (timeline empty)"


def no_step_judged(error: str) -> str:
    """One reason stands for all: with none of the steps judged, a score would say nothing about the calls."""
    return f"No step could be judged: {error}"
