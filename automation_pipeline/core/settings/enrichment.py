"""The three registries that companies are looked up in, and how an enrichment goes about it."""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from automation_pipeline.core.settings.org_jobs import OrgJobSettings
from automation_pipeline.core.settings.types import HttpAddress, Token


class EnrichmentSettings(OrgJobSettings):
    recherche_entreprises_base_url: HttpAddress | None = Field(
        default=None,
        description="Address of the Recherche d'entreprises: `https://recherche-entreprises.api.gouv.fr`; enrichment "
        "needs it. A registry without its variables is not called.",
    )
    recherche_entreprises_per_second: int = Field(
        default=6,
        ge=1,
        le=100,
        description="Its calls in any second by all processes together; it lets an address make seven.",
    )
    inpi_rne_base_url: HttpAddress | None = Field(
        default=None,
        description="Address of INPI's register of companies: `https://registre-national-entreprises.inpi.fr`.",
    )
    inpi_rne_username: str | None = Field(default=None, min_length=1, description="Our account at INPI's register.")
    inpi_rne_password: SecretStr | None = Field(
        default=None, description="Its password; after five wrong ones INPI blocks the account."
    )
    inpi_rne_per_minute: int = Field(
        default=170,
        ge=1,
        le=10_000,
        description="Its calls in any minute by all processes together; INPI bans who makes more than 180.",
    )
    inpi_rne_calls_per_day: int = Field(
        default=9_500, ge=1, le=1_000_000, description="Its calls a day; INPI lets an account make 10,000."
    )
    api_entreprise_base_url: HttpAddress | None = Field(
        default=None, description="Address of API Entreprise: `https://entreprise.api.gouv.fr`; for public bodies only."
    )
    api_entreprise_token: Token | None = Field(default=None, description="Our token for API Entreprise.")
    api_entreprise_recipient: str | None = Field(
        default=None, pattern=r"^[0-9]{14}$", description="The SIRET of the public body that asks."
    )
    api_entreprise_context: str = Field(
        default="Enrichissement du référentiel des entreprises",
        min_length=1,
        max_length=200,
        description="Why API Entreprise is asked, as it wants to be told with each call.",
    )
    api_entreprise_object: str = Field(
        default="Enrichissement d'une fiche entreprise",
        min_length=1,
        max_length=49,
        description="In which matter it is asked, in fewer than 50 characters.",
    )
    api_entreprise_per_second: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Its calls in any second by all processes together; it lets a token make 250 in a minute.",
    )
    enrichment_timeout_seconds: float = Field(
        default=5, gt=0, le=120, description="How long one answer of a registry is waited for."
    )
    enrichment_freshness_days: int = Field(
        default=30, ge=1, le=3650, description="What is known of a company is as old as this before it is looked up."
    )
    enrichment_lock_seconds: float = Field(
        default=120, gt=0, le=3600, description="How long the hold on a company outlives its last heartbeat."
    )
    enrichment_heartbeat_seconds: float = Field(
        default=30, gt=0, le=1200, description="How often the hold is renewed; a third of the one above at most."
    )
    enrichment_cooldown_minutes: float = Field(
        default=15, ge=0, le=10_080, description="A company is not refreshed by hand again before; 0: at any time."
    )
    enrichment_optional_not_found: Literal["failed", "not_applicable"] = Field(
        default="failed",
        description="What a company is that INPI or API Entreprise does not know: a failure of theirs, which makes "
        "the enrichment partial, or nothing that counts.",
    )

    @model_validator(mode="after")
    def _hold_for_several_heartbeats(self) -> Self:
        if 3 * self.enrichment_heartbeat_seconds > self.enrichment_lock_seconds + 1e-9:
            raise ValueError("ENRICHMENT_HEARTBEAT_SECONDS must be at most a third of ENRICHMENT_LOCK_SECONDS")
        return self
