"""How sales lists are fetched, and how transcription and audits work."""

from pydantic import Field

from automation_pipeline.core.settings.outside import OutsideSettings
from automation_pipeline.core.settings.types import Origins


class CraftSettings(OutsideSettings):
    progressive_fetch_webhook_frequency: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="The webhook of a job over days hears of its progress after every so many days.",
    )
    transcription_elevenlabs_rate_limit_per_minute: int = Field(
        default=10, ge=1, le=100_000, description="Calls of ElevenLabs in any minute by all processes together."
    )
    transcription_elevenlabs_max_attempts: int = Field(
        default=6, ge=1, le=20, description="Calls of ElevenLabs for one recording before it counts as failed."
    )
    transcription_elevenlabs_backoff_base_seconds: float = Field(
        default=2, ge=0, le=3600, description="The wait before the second attempt; it doubles with each one after."
    )
    transcription_elevenlabs_backoff_max_seconds: float = Field(
        default=60, ge=0, le=86_400, description="The longest wait between two attempts that we choose ourselves."
    )
    transcription_recording_worker_concurrency: int = Field(
        default=10, ge=1, le=500, description="Recordings transcribed at the same time by one process."
    )
    transcription_recording_per_fiche_concurrency: int = Field(
        default=10, ge=1, le=500, description="Recordings of one fiche transcribed at the same time."
    )
    transcription_max_wait_seconds: float = Field(
        default=900, ge=30, le=86_400, description="How long a caller that waits for a transcription waits at most."
    )
    transcription_lease_seconds: float = Field(
        default=60, ge=5, le=3600, description="How long a claim on a fiche or recording outlives its last heartbeat."
    )
    transcription_audio_max_megabytes: int = Field(
        default=500, ge=1, le=3000, description="The biggest recording that is downloaded, in millions of bytes."
    )
    transcription_audio_allowed_origins: Origins = Field(
        default=(),
        description="Origins of recordings such as `https://calls.example.com`, separated by commas. When set, "
        "recordings are downloaded from these alone, private addresses included; when not, from every public address.",
    )
    transcription_progress_webhook_frequency: int = Field(
        default=3, ge=1, le=10_000, description="A progress event after every so many recordings of a fiche."
    )
    audit_step_concurrency: int = Field(
        default=3, ge=1, le=100, description="Steps of one audit that are judged at the same time."
    )
    audit_run_concurrency: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Audits at the same time in one process, where a run has several. Few of an audit's acts are the "
        "model's: twice as many as `LLM_MAX_CONCURRENCY` keep its places taken.",
    )
    audit_evidence_gating: bool = Field(
        default=True, description="Whether a quotation counts only if it stands in the transcript; `0` turns it off."
    )
    audit_evidence_min_quote_chars: int = Field(
        default=12, ge=1, le=1000, description="The shortest quotation that counts, in letters and digits."
    )
    audit_step_timeline_excerpt: bool = Field(
        default=True,
        description="Whether steps that verify the product read an excerpt of the calls; `0` turns it off.",
    )
    audit_step_timeline_max_chunks: int = Field(
        default=40, ge=10, le=10_000, description="How many chunks such an excerpt is made of, neighbours apart."
    )
    audit_tool_rounds: int = Field(
        default=8, ge=2, le=50, description="Calls of the model for one step when it reads the calls with tools."
    )
    audit_lease_seconds: float = Field(
        default=60, ge=2, le=3600, description="How long the hold on an audit outlives its last heartbeat."
    )
    audit_max_wait_seconds: float = Field(
        default=1800, ge=30, le=86_400, description="An audit without a sign of life for this long is ended as failed."
    )
