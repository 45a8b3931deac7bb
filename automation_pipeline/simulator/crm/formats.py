"""How the CRM writes things down: French dates on the wall clock of Paris, instants of calls in
UTC."""

from datetime import date, datetime
from typing import TypeAlias

from automation_pipeline.simulator.audio import recording_path
from automation_pipeline.simulator.world.values import Recording

Section: TypeAlias = dict[str, object]


def french_day(day: date) -> str:
    return f"{day:%d/%m/%Y}"


def french_minute(instant: datetime) -> str:
    return f"{instant:%d/%m/%Y %H:%M}"


def recording_json(recording: Recording, origin: str, *, with_transcription: bool) -> Section:
    """`origin` is where the simulator was reached, so that the URL leads back to it. Nothing is
    transcribed there."""
    shown: Section = {
        "call_id": recording.call_id,
        "start_time": recording.started_at.isoformat(timespec="microseconds"),
        "duration_seconds": recording.duration_seconds,
        "direction": recording.direction,
        "from_number": recording.from_number,
        "to_number": recording.to_number,
        "answered": recording.answered,
        "recording_url": f"{origin}{recording_path(recording)}" if recording.has_url else None,
    }
    return shown | {"transcription": None} if with_transcription else shown
