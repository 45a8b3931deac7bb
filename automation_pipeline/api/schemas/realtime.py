"""What browsers ask of realtime, and what they get."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from automation_pipeline.core.json_model import JsonModel


class JoinInput(JsonModel):
    """As Pusher's library asks."""

    model_config = ConfigDict(alias_generator=None, extra="ignore")

    socket_id: str = Field(pattern=r"^[0-9]{1,20}\.[0-9]{1,20}$")
    channel_name: str = Field(min_length=1, max_length=400)


class Leave(BaseModel):
    """As Pusher's library wants it."""

    auth: str
    channel_data: str | None = None


class TestEventInput(JsonModel):
    channel: str = Field(min_length=1, max_length=200)
    event: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)  # Any: JSON
