"""The shop whose prices are changed, and how its worker goes about it."""

from pydantic import Field

from automation_pipeline.core.settings.edges import EdgeSettings
from automation_pipeline.core.settings.types import HttpAddress, Token


class PricingSettings(EdgeSettings):
    shop_api_base_url: HttpAddress | None = Field(
        default=None, description="Address of the shop, such as `https://example.myshopify.com`; pricing needs it."
    )
    shop_api_token: Token | None = Field(
        default=None, description="The shop's Admin API access token, with the scopes read_products and write_products."
    )
    shop_api_version: str = Field(
        default="2026-10",
        pattern=r"^([0-9]{4}-[0-9]{2}|unstable)$",
        description="The version of the shop's Admin API, such as `2026-10`.",
    )
    shop_timeout_seconds: float = Field(
        default=30, gt=0, le=300, description="How long one answer of the shop is waited for."
    )
    worker_max_concurrency: int = Field(
        default=5, ge=1, le=50, description="Calls of the shop at the same time by one run of a pricing rule."
    )
    worker_enable_reconciliation: bool = Field(
        default=True, description="Whether applied prices are looked up again: after five minutes, an hour, and daily."
    )
    pricing_lease_seconds: float = Field(
        default=120,
        ge=1,
        le=3600,
        description="How long the hold on a pricing run outlives its last heartbeat; longer than a call of the shop.",
    )
    pricing_alert_webhook_url: HttpAddress | None = Field(
        default=None, description="Where pricing alerts are posted; without it they are only stored and shown."
    )
    pricing_critical_alert_webhook_url: HttpAddress | None = Field(
        default=None,
        description="Where critical pricing alerts are posted instead, for example a pager; "
        "without it they go to PRICING_ALERT_WEBHOOK_URL too.",
    )
