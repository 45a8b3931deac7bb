"""How the system is doing, and who the caller is."""

from typing import Literal

from pydantic import BaseModel, Field


class Live(BaseModel):
    status: Literal["ok"] = "ok"
    timestamp: str
    service: Literal["automation-pipeline"] = "automation-pipeline"
    version: str
    instance: str = Field(description="Which process answers.", examples=["host-1:4711"])


class FindingShown(BaseModel):
    name: str = Field(examples=["database"])
    state: Literal["ok", "not set", "failed"]
    detail: str
    required: bool


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    checks: list[FindingShown]


class Diagnosis(BaseModel):
    healthy: bool = Field(description="Nothing that is required has failed.")
    checks: list[FindingShown]


class GrantShown(BaseModel):
    read: Literal["SELF", "GROUP", "ALL"] | None
    write: Literal["SELF", "GROUP", "ALL"] | None


class Me(BaseModel):
    id: str = Field(examples=["user:12", "token:3"])
    name: str
    roles: list[str]
    groupes: list[str]
    crm_user_id: str | None
    permissions: dict[str, GrantShown]
