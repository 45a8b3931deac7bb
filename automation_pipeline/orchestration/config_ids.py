"""The ids that the config of a launch names, and those that tags hold: no database knows any beyond its bounds."""

import re

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_DIGITS, LARGEST_ID

_DIGITS = re.compile(ID_DIGITS)


def check_ids(**given: int | None) -> None:
    """InvalidInputError naming every field that can be no id; None is one that is not given."""
    faults = tuple((name, f"must be from 1 to {LARGEST_ID}") for name, one in given.items() if not _may_be(one))
    if faults:
        raise InvalidInputError("Invalid config", faults)


def id_in(given: object) -> int | None:
    """None where it can be none: people may write into config and tags what they like."""
    text = str(given)
    return int(text) if _DIGITS.fullmatch(text) and int(text) <= LARGEST_ID else None


def _may_be(one: int | None) -> bool:
    return one is None or 1 <= one <= LARGEST_ID
