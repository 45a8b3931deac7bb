"""Health, metrics and the caller's own permissions."""

import os
import socket
from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.health import Finding, examine, readiness
from automation_pipeline.api.metrics import exposition
from automation_pipeline.api.parameters import TheCaller, TheServices
from automation_pipeline.api.responses import Answer, answer
from automation_pipeline.core.access import Action
from automation_pipeline.core.clock import iso


class Live(BaseModel):
    status: Literal["ok"] = "ok"
    timestamp: str
    service: Literal["automation-pipeline"] = "automation-pipeline"
    version: str
    instance: str = Field(description="Which process answers.", examples=["host-1:4711"])


class FindingShown(BaseModel):
    name: str = Field(examples=["database"])
    state: Literal["ok", "not set", "failed", "skipped"]
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


router = APIRouter(route_class=GuardedRoute, tags=["health"])


@router.get("/health", response_model=Live)
async def live(request: Request, services: TheServices) -> Response:
    """The process answers."""
    about = {
        "status": "ok",
        "timestamp": iso(services.clock.now()),
        "service": "automation-pipeline",
        "version": str(request.app.version),
        "instance": f"{socket.gethostname()}:{os.getpid()}",
    }
    return JSONResponse(about)


@router.get(
    "/health/ready",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Something that is needed is away"}},
)
def ready(services: TheServices) -> Response:
    """Work that is asked for now would be done: the database, Redis if it is configured, and
    Dagster's daemon."""
    found = readiness(services)
    is_ready = not any(finding.is_trouble for finding in found)
    document = {"status": "ready" if is_ready else "not ready", "checks": _shown(found)}
    return JSONResponse(document, 200 if is_ready else 503)


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_class=Response,
)
def metrics(services: TheServices) -> Response:
    """Numbers for Prometheus; no name of anybody among them."""
    return Response(exposition(services), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/automation/diagnostic", response_model=Answer[Diagnosis])
def diagnostic(services: TheServices) -> Response:
    """The checks of `automation doctor`: whether everything that the system needs is available."""
    found = examine(services)
    return answer(
        {"healthy": not any(finding.is_trouble for finding in found), "checks": _shown(found)}
    )


@router.get("/api/auth/me", response_model=Answer[Me], tags=["access"])
def me(caller: TheCaller) -> Response:
    """Who the credentials belong to, and what they allow."""
    permissions: dict[str, dict[str, str | None]] = {}
    for permission in caller.grants:
        reaches = {action.value: caller.reach(permission, action) for action in Action}
        permissions[permission.value] = {
            action: reach and reach.scope.name for action, reach in reaches.items()
        }
    return answer(
        {
            "id": caller.id,
            "name": caller.name,
            "roles": list(caller.roles),
            "groupes": sorted(caller.groupes),
            "crm_user_id": caller.crm_user_id,
            "permissions": permissions,
        }
    )


def _shown(found: Sequence[Finding]) -> list[dict[str, object]]:
    return [
        {"name": one.name, "state": str(one.state), "detail": one.detail, "required": one.required}
        for one in found
    ]
