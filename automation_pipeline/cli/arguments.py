"""What several commands are given in the same way, and how it is refused."""

import re
from collections.abc import Iterable

from automation_pipeline.core.errors import InvalidInputError

_FICHE_ID = re.compile(r"[1-9][0-9]{0,17}")


def check_fiche_ids(given: Iterable[str]) -> None:
    """InvalidInputError names those that no fiche can have."""
    wrong = [fiche_id for fiche_id in given if not _FICHE_ID.fullmatch(fiche_id)]
    if wrong:
        raise InvalidInputError(f"A fiche id is a number, unlike {', '.join(wrong)}.")
