"""What was said in the calls of a fiche, in order."""

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True)
class TimelineChunk:
    """`index` from 0 in its recording; times in seconds from the recording's start."""

    index: int
    start: float
    end: float
    message_count: int
    speakers: tuple[str, ...]
    full_text: str


@dataclass(frozen=True, kw_only=True)
class TimelineRecording:
    """`index` from 0 in the timeline."""

    index: int
    call_id: str
    date: str
    time: str
    url: str
    duration_seconds: int
    from_number: str
    to_number: str
    chunks: tuple[TimelineChunk, ...]


@dataclass(frozen=True)
class Timeline:
    recordings: tuple[TimelineRecording, ...]

    def recording(self, index: int) -> TimelineRecording | None:
        return self.recordings[index] if 0 <= index < len(self.recordings) else None

    def chunk(self, recording_index: int, chunk_index: int) -> TimelineChunk | None:
        recording = self.recording(recording_index)
        if recording is None:
            return None
        return next((chunk for chunk in recording.chunks if chunk.index == chunk_index), None)

    @property
    def chunk_count(self) -> int:
        return sum(len(recording.chunks) for recording in self.recordings)


def minutage(seconds: float) -> str:
    """MM:SS, the second having begun. Minutes go on after 59: three hours are 180:00."""
    whole = int(seconds) if isfinite(seconds) and seconds > 0 else 0
    return f"{whole // 60:02d}:{whole % 60:02d}"
