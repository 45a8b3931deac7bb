"""Which version of a thing a caller has looked at: its ETag, or the `updatedAt` that it was shown."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.instants import iso

_ETAG = re.compile(r'(?:W/)?("[0-9]{1,17}")')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

IsExpected = Callable[[datetime], bool]


def etag_of(updated_at: datetime) -> str:
    return f'"{(updated_at - _EPOCH) // timedelta(microseconds=1)}"'


def expected_version(
    if_match: str | None, body: Mapping[str, object]
) -> tuple[IsExpected | None, Mapping[str, object]]:
    """Whether a thing that was changed then is the one that the caller has seen, and the body without that."""
    patch = {name: value for name, value in body.items() if name != "updatedAt"}
    if if_match is not None and if_match.strip() != "*":
        tag = _ETAG.fullmatch(if_match.strip())
        if tag is None:
            raise _fault("If-Match", "must be an ETag as it was given")
        return (lambda updated_at: etag_of(updated_at) == tag[1]), patch
    shown = body.get("updatedAt")
    if shown is None:
        return None, patch
    if not isinstance(shown, str):
        raise _fault("updatedAt", "must be the instant as it was shown")
    return (lambda updated_at: iso(updated_at) == shown), patch


def _fault(field: str, why: str) -> InvalidInputError:
    return InvalidInputError("Invalid request", ((field, why),))
