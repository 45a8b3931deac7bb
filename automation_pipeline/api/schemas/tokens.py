"""Machines' tokens as the API shows them."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.access.domain.api_token import TokenState
from automation_pipeline.core.json_model import Instant

NIGHTLY: Mapping[str, object] = {
    "name": "nightly",
    "permissions": ["automation.write", "audits.read"],
    "scope": "GROUP",
    "groupes": ["TEAM R1"],
    "expiresInDays": 90,
}


AGENT: Mapping[str, object] = {
    "name": "agent of acme",
    "orgId": "acme",
    "permissions": ["org-jobs.agents.write"],
    "scope": "ALL",
}


class TokenShown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    id: str = Field(examples=["3"])
    name: str
    prefix: str = Field(description="How the token begins.")
    state: TokenState
    permissions: list[str]
    scope: Literal["ALL", "GROUP", "SELF"]
    groupes: list[str]
    crm_user_id: str | None
    org_id: str | None = Field(description="The organisation that it belongs to, and reaches nothing beyond.")
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


class TokenIssued(TokenShown):
    token: str = Field(description="The token itself. It is shown this once.")
