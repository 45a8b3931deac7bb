"""ETags of schedules and rules: a change is refused when the entity changed since it was read."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError

_ETAG = re.compile(r'(?:W/)?"([0-9]{1,17})"')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = "updatedAt"

IsExpected = Callable[[datetime], bool]


def etag_of(updated_at: datetime) -> str:
    return f'"{(updated_at - _EPOCH) // timedelta(microseconds=1)}"'


def expected_version(
    if_match: str | None, body: Mapping[str, object]
) -> tuple[IsExpected | None, Mapping[str, object]]:
    """Whether a thing that was changed then is the one that the caller has seen, and the body
    without that."""
    tag, shown, patch = _seen(if_match, body)
    if tag is not None:
        return (lambda updated_at: etag_of(updated_at) == f'"{tag}"'), patch
    return (None if shown is None else lambda updated_at: iso(updated_at) == shown), patch


def expected_instant(
    if_match: str | None, body: Mapping[str, object]
) -> tuple[datetime | None, Mapping[str, object]]:
    """When the thing that the caller has seen was last changed, and the body without that."""
    tag, shown, patch = _seen(if_match, body)
    if tag is not None:
        return _EPOCH + timedelta(microseconds=tag), patch
    return (None if shown is None else _instant(shown)), patch


def expected_number(
    if_match: str | None, body: Mapping[str, object]
) -> tuple[int | datetime | None, Mapping[str, object]]:
    """As above, of things whose ETag is the number of their version."""
    tag, shown, patch = _seen(if_match, body)
    return tag if tag is not None or shown is None else _instant(shown), patch


def _seen(
    if_match: str | None, body: Mapping[str, object]
) -> tuple[int | None, str | None, Mapping[str, object]]:
    """The number in the ETag, or what was shown; the tag is the more exact of the two."""
    patch = {name: value for name, value in body.items() if name != _SHOWN}
    if if_match is not None and if_match.strip() != "*":
        tag = _ETAG.fullmatch(if_match.strip())
        if tag is None:
            raise _fault("If-Match", "must be an ETag as it was given")
        return int(tag[1]), None, patch
    shown = body.get(_SHOWN)
    if shown is not None and not isinstance(shown, str):
        raise _fault(_SHOWN, "must be the instant as it was shown")
    return None, shown, patch


def _instant(shown: str) -> datetime:
    try:
        return datetime.strptime(shown, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        raise _fault(_SHOWN, "must be the instant as it was shown") from None


def _fault(field: str, why: str) -> InvalidInputError:
    return InvalidInputError("Invalid request", ((field, why),))
