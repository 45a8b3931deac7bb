"""Jobs of organisations: how many are at work, for how long they are remembered, and where their calls may go."""

from pydantic import Field

from automation_pipeline.core.settings.pricing import PricingSettings
from automation_pipeline.core.settings.types import HttpAddress, Origins


class OrgJobSettings(PricingSettings):
    org_jobs_max_running: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Jobs of all organisations that this system works on at the same time; agents' jobs do not count.",
    )
    org_jobs_lease_seconds: float = Field(
        default=60,
        ge=1,
        le=3600,
        description="How long a worker's hold on a job outlives its last heartbeat.",
    )
    org_jobs_alert_webhook_url: HttpAddress | None = Field(
        default=None, description="Where alerts of organisations' jobs are posted; without it they are only shown."
    )
    org_jobs_keep_days: int = Field(
        default=90, ge=0, le=3650, description="How long ended jobs, fires and alerts of organisations are kept."
    )
    org_jobs_audit_keep_days: int = Field(
        default=365,
        ge=0,
        le=3650,
        description="How long it is kept who changed what of organisations' hosts, servers, schedules and jobs.",
    )
    org_jobs_https_allowed_origins: Origins = Field(
        default=(),
        description="Origins that jobs of organisations may call wherever they are, such as `http://localhost:3000`; "
        "all others must be public, and https.",
    )
