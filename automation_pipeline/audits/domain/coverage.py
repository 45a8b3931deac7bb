"""Whether an audit can be judged to its end: which recordings it needs, and what is still missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """A recording of the fiche that the CRM still knows."""

    call_id: str
    has_audio: bool
    has_transcript: bool


def is_required(call: Call) -> bool:
    """Whether an audit waits for the recording's transcript. Transcription gives up a recording without the address of
    its audio at once, so nothing can ever be heard of it; every other recording can be transcribed."""
    return call.has_audio


@dataclass(frozen=True)
class Coverage:
    """Call ids: `heard` have a transcript and `missing` do not; `without_audio` are not required."""

    heard: tuple[str, ...]
    missing: tuple[str, ...]
    without_audio: tuple[str, ...]

    @property
    def required(self) -> int:
        return len(self.heard) + len(self.missing)

    @property
    def recordings(self) -> int:
        return self.required + len(self.without_audio)

    @property
    def is_whole(self) -> bool:
        return not self.missing

    @property
    def sentence(self) -> str:
        left_out = f" ({len(self.without_audio)} more without audio)" if self.without_audio else ""
        return f"transcripts of {len(self.heard)} of {self.required} recordings{left_out}"


def coverage_of(calls: Sequence[Call]) -> Coverage:
    required = [call for call in calls if is_required(call)]
    return Coverage(
        heard=tuple(call.call_id for call in required if call.has_transcript),
        missing=tuple(call.call_id for call in required if not call.has_transcript),
        without_audio=tuple(call.call_id for call in calls if not is_required(call)),
    )


def coverage_document(coverage: Coverage) -> Mapping[str, object]:
    return {
        "recordings": coverage.recordings,
        "required": coverage.required,
        "transcribed": len(coverage.heard),
        "missing": list(coverage.missing),
        "without_audio": list(coverage.without_audio),
    }


def steps_sentence(judged: int, steps: int) -> str:
    return f"{judged} of {steps} steps judged"
