"""Payloads of the jobs about players, mods and profiles."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.payload_kinds import FileName, Key, Line, ShortLine

_Player = Annotated[ShortLine, Field(description="As the game knows it: a name, or an id of its platform.")]


class OnePlayer(JsonModel):
    player: _Player


class PlayerKick(OnePlayer):
    reason: ShortLine | None = None


class PlayerBan(PlayerKick):
    minutes: StrictInt | None = Field(default=None, ge=1, le=5_256_000, description="Without it the ban is for good.")


class PlayerMessage(JsonModel):
    player: _Player | None = Field(default=None, description="Without it the message is for all.")
    message: Line


class ModSearch(JsonModel):
    query: ShortLine
    limit: StrictInt = Field(default=20, ge=1, le=100)


class OneMod(JsonModel):
    mod: Key


class ModVersion(OneMod):
    version: Key | None = Field(default=None, description="Without it the newest.")
    restart: StrictBool = False


class ModUpdateAll(JsonModel):
    restart: StrictBool = True
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")


class OneProfile(JsonModel):
    profile: FileName


class ProfileApply(OneProfile):
    restart: StrictBool = False
