"""What was said in a fiche's calls, in their order: what is judged, and what may be quoted."""

from dataclasses import dataclass


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
