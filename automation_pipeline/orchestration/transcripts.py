"""What people read about transcription in Dagster."""

import dagster as dg

from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.days import counts_table
from automation_pipeline.transcription.domain.day import DayTranscripts
from automation_pipeline.transcription.domain.run import Standing


def standing_metadata(standing: Standing) -> dict[str, dg.MetadataValue]:
    return {
        "run": metadata.text(standing.run_id),
        "status": metadata.text(standing.status),
        "recordings": metadata.integer(standing.total),
        "transcribed": metadata.integer(standing.transcribed),
        "new": metadata.integer(standing.new),
        "failed": metadata.integer(standing.failed),
    }


def day_metadata(day: DayTranscripts) -> dict[str, dg.MetadataValue]:
    return {
        "recordings": metadata.integer(day.recordings),
        "transcribed": metadata.integer(day.transcribed),
        "coverage": metadata.real(day.coverage),
        "minutes_of_audio": metadata.real(day.minutes),
        **({"failures": metadata.markdown(counts_table("cause", day.failures))} if day.failures else {}),
    }
