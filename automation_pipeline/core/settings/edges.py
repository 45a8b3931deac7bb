"""The edges: the HTTP API, who may use it, realtime events, and logs."""

from typing import Literal

from pydantic import AliasChoices, Field

from automation_pipeline.core.settings.messages import MessageSettings
from automation_pipeline.core.settings.types import HttpAddress, Origins, Token, Tokens


class EdgeSettings(MessageSettings):
    api_host: str = Field(default="127.0.0.1", min_length=1, description="The address that the HTTP API listens on.")
    api_port: int = Field(
        default=3002,
        ge=0,
        le=65535,
        validation_alias=AliasChoices("API_PORT", "PORT"),
        description="Its port; 0 takes a free one. `PORT` is read too.",
    )
    api_auth_tokens: Tokens = Field(
        default=(),
        validation_alias=AliasChoices("API_AUTH_TOKENS", "API_AUTH_TOKEN"),
        description="Machine tokens that may do everything, separated by commas, 16 characters or more each. "
        "`API_AUTH_TOKEN` is read too. `automation tokens create` makes ones that may do less.",
    )
    api_cors_origins: Origins = Field(
        default=(), description="Origins of web pages that may call the API from a browser, separated by commas."
    )
    api_max_body_megabytes: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="The largest body that the API reads, in millions of bytes. An import may be twice as large.",
    )
    api_timeout_seconds: float = Field(
        default=60, gt=0, le=3600, description="How long one answer of the API may take; streams of events are longer."
    )
    api_shutdown_seconds: int = Field(
        default=15, ge=0, le=600, description="How long answers under way may take when the API is stopped."
    )
    automation_api_url: HttpAddress | None = Field(
        default=None,
        description="The API of another machine that the command line works with, instead of the database here; "
        "`--api` says another.",
    )
    automation_api_token: Token | None = Field(
        default=None, description="The token for it, as `automation tokens create` on that machine makes one."
    )
    jwt_access_secret: Token | None = Field(
        default=None,
        min_length=32,
        description="The secret that users' access tokens are signed with (HS256), 32 characters or more; without it "
        "there are no users, only machines.",
    )
    jwt_issuer: str = Field(default="ai-audit", min_length=1, description="Who must have issued users' tokens.")
    jwt_audience: str = Field(default="ai-audit", min_length=1, description="Whom users' tokens must be meant for.")
    pusher_app_id: str | None = Field(
        default=None, description="The Pusher application; realtime events go out when all four of its values are set."
    )
    pusher_key: str | None = Field(
        default=None,
        validation_alias=AliasChoices("PUSHER_KEY", "NEXT_PUBLIC_PUSHER_KEY"),
        description="Its key. `NEXT_PUBLIC_PUSHER_KEY` is read too.",
    )
    pusher_secret: Token | None = Field(default=None, description="Its secret.")
    pusher_cluster: str | None = Field(default=None, description="Its cluster, such as `eu`.")
    pusher_base_url: HttpAddress | None = Field(
        default=None, description="Another server that speaks Pusher's protocol, instead of the cluster's."
    )
    pusher_use_private_channels: bool = Field(
        default=True, description="Whether channels are private; `0` drops the prefix, and anybody may listen."
    )
    pusher_max_payload_bytes: int = Field(
        default=9000, ge=1000, le=10_000, description="A bigger event is cut down to what identifies it."
    )
    pusher_dry_run: bool = Field(default=False, description="`1` writes realtime events to the log instead.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least urgent lines that our own processes log."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object each."
    )
