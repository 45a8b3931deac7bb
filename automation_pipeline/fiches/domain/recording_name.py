"""What the name of a recording's file tells. Its local date and time are not read: the start of the call is exact."""

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"-\d\d-\d\d-\d\d-\d\dh\d\d-(?P<from_number>\d+)-(?P<to_number>\d+)\.mp3",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True)
class RecordingName:
    uuid: str
    from_number: str
    to_number: str


def recording_name(url: str) -> RecordingName | None:
    """The parts of the last segment of the URL's path; None if it is not named in the CRM's way."""
    path = url.partition("#")[0].partition("?")[0]
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    return RecordingName(match["uuid"].lower(), match["from_number"], match["to_number"])
