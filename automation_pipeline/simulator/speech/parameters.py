"""The form of a transcription as the provider reads it, and the errors it answers with when it
cannot."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from automation_pipeline.simulator.speech.multipart import Part

MODEL = "scribe_v1"
GRANULARITIES = ("none", "word", "character")
FLAGS = {"true": True, "1": True, "false": False, "0": False}


class RefusedError(Exception):
    """An answer other than 200: its status, and what its body has as `detail`."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


@dataclass(frozen=True, slots=True)
class Parameters:
    with_words: bool
    diarize: bool


def read_parameters(form: Mapping[str, Part]) -> Parameters:
    """Raises RefusedError: 422 for what is missing or of the wrong kind, 400 for a wrong model or
    an empty file."""
    fields = {name: part.text for name, part in form.items() if not part.is_file}
    sent = {name for name, part in form.items() if part.is_file == (name == "file")}
    if missing := [name for name in ("model_id", "file") if name not in sent]:
        raise RefusedError(422, [_problem(name, "missing", "Field required") for name in missing])
    if fields["model_id"] != MODEL:
        message = (
            f"'{fields['model_id'][:100]}' is not a valid model_id. Only '{MODEL}' is supported."
        )
        raise RefusedError(400, provider_error("invalid_model_id", message))
    language = fields.get("language_code", "fra")
    if not re.fullmatch("[a-z]{2,3}", language):
        raise RefusedError(422, [_problem("language_code", "value_error", "Not an ISO 639 code")])
    granularity, diarize = (
        fields.get("timestamps_granularity", "word"),
        fields.get("diarize", "false").lower(),
    )
    if granularity not in GRANULARITIES:
        wanted = f"Input should be one of {', '.join(GRANULARITIES)}"
        raise RefusedError(422, [_problem("timestamps_granularity", "literal_error", wanted)])
    if diarize not in FLAGS:
        raise RefusedError(
            422, [_problem("diarize", "bool_parsing", "Input should be a valid boolean")]
        )
    if not form["file"].size:
        raise RefusedError(400, provider_error("invalid_content", "The uploaded file is empty."))
    return Parameters(with_words=granularity != "none", diarize=FLAGS[diarize])


def provider_error(status: str, message: str) -> dict[str, str]:
    return {"status": status, "message": message}


def _problem(name: str, kind: str, message: str) -> dict[str, object]:
    return {"type": kind, "loc": ["body", name], "msg": message}
