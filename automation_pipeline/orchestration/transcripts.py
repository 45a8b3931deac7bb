"""What people read about transcription in Dagster."""

import dagster as dg

from automation_pipeline.orchestration.days import counts_table
from automation_pipeline.transcription.domain.day import DayTranscripts
from automation_pipeline.transcription.domain.run import Standing


def standing_metadata(standing: Standing) -> dict[str, dg.MetadataValue]:
    return {
        "run": dg.MetadataValue.text(standing.run_id),
        "status": dg.MetadataValue.text(str(standing.status)),
        "recordings": dg.MetadataValue.int(standing.total),
        "transcribed": dg.MetadataValue.int(standing.transcribed),
        "new": dg.MetadataValue.int(standing.new),
        "failed": dg.MetadataValue.int(standing.failed),
    }


def day_metadata(day: DayTranscripts) -> dict[str, dg.MetadataValue]:
    return {
        "recordings": dg.MetadataValue.int(day.recordings),
        "transcribed": dg.MetadataValue.int(day.transcribed),
        "coverage": dg.MetadataValue.float(day.coverage),
        "minutes_of_audio": dg.MetadataValue.float(day.minutes),
        **({"failures": dg.MetadataValue.md(counts_table("cause", day.failures))} if day.failures else {}),
    }
