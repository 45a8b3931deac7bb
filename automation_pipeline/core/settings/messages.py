"""Who is told about runs, and how: webhooks and e-mail."""

from pydantic import Field

from automation_pipeline.core.settings.crafts import CraftSettings
from automation_pipeline.core.settings.types import Origins, Token


class MessageSettings(CraftSettings):
    webhook_allowed_origins: Origins = Field(
        default=(),
        description="Origins such as `https://hooks.example.com`, separated by commas. When set, webhooks go to these "
        "alone, private addresses included; when not, to every public address.",
    )
    webhook_secret: Token | None = Field(
        default=None, description="Signs webhooks: HMAC-SHA256 of time and body, in a header."
    )
    webhook_timeout_seconds: float = Field(
        default=10, gt=0, le=25, description="How long the receiver of a webhook is waited for."
    )
    webhook_max_attempts: int = Field(
        default=5, ge=1, le=20, description="Calls of a webhook before its message is given up."
    )
    smtp_host: str | None = Field(default=None, description="The mail server; without it no e-mail is sent.")
    smtp_port: int = Field(default=587, ge=1, le=65535, description="Its port.")
    smtp_secure: bool = Field(
        default=False, description="Whether the connection is encrypted from the start, as always on port 465."
    )
    smtp_user: str | None = Field(default=None, description="Who we are to the mail server, if it asks.")
    smtp_pass: Token | None = Field(default=None, description="The password to that.")
    smtp_from: str | None = Field(
        default=None, description="The sender's address; `SMTP_USER` when left out. Without either no e-mail is sent."
    )
    smtp_timeout_ms: int = Field(
        default=10_000, ge=1000, le=20_000, description="How long the mail server is waited for."
    )
