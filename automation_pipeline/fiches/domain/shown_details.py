"""What of a fiche's details is shown to whom: the calls' audio and words only to those who may have recordings."""

from collections.abc import Mapping
from typing import cast

Document = dict[str, object]

_OF_RECORDINGS = ("recording_url", "transcription_text")
MAIL_DEVIS = "mail_devis"


def without_recordings_audio(document: Mapping[str, object]) -> Document:
    recordings = cast("list[Document]", document["recordings"])
    hidden = [{**recording, **dict.fromkeys(_OF_RECORDINGS)} for recording in recordings]
    return {**_without_raw(document, "recordings"), "recordings": hidden}


def without_mail_devis(document: Mapping[str, object]) -> Document:
    return _without_raw(document, MAIL_DEVIS)


def _without_raw(document: Mapping[str, object], name: str) -> Document:
    """What the CRM says beyond what is modelled may hold more of the same."""
    raw = cast("Mapping[str, object]", document["raw_data"])
    return {**document, "raw_data": {key: value for key, value in raw.items() if key != name}}
