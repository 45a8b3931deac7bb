"""Payloads of the jobs about servers, their consoles and their saves."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.payload_kinds import FileName, GraceSeconds, Keep, Line, ShortLine
from automation_pipeline.org_jobs.domain.secrets import SecretRef

_Region = Annotated[
    str, Field(pattern=r"^-?[0-9]{1,6}\.-?[0-9]{1,6}$", description="As `-3.12`: its place on the map.")
]


class ServerStop(JsonModel):
    grace_seconds: GraceSeconds = 30
    message: ShortLine | None = None


class ServerSafeRestart(ServerStop):
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")
    most_players: StrictInt | None = Field(default=None, ge=0, le=10_000, description="It waits until no more are on.")


class ServerWipeSave(JsonModel):
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")
    restart: StrictBool = True


class ConsoleCommand(JsonModel):
    command: Line


class RconCommand(ConsoleCommand):
    password: SecretRef | None = Field(default=None, description="Without it the agent uses the one that it knows.")
    timeout_seconds: StrictInt = Field(default=10, ge=1, le=120)


class SaveList(JsonModel):
    limit: StrictInt = Field(default=100, ge=1, le=1000)


class SaveBackup(JsonModel):
    name: FileName | None = Field(default=None, description="Without it the backup is named after its instant.")
    keep: Keep | None = None


class SaveRestore(JsonModel):
    save: FileName
    backup: StrictBool = Field(default=True, description="Whether a backup is made before.")
    restart: StrictBool = True


class SaveDelete(JsonModel):
    save: FileName


class SaveRetention(JsonModel):
    keep: Keep = 10
    older_than_days: StrictInt | None = Field(
        default=None, ge=1, le=3650, description="Only those that are older are removed."
    )


class RegionHealerScan(JsonModel):
    """Without regions: the whole map."""

    regions: tuple[_Region, ...] = Field(default=(), max_length=1000)


class RegionHealerHeal(RegionHealerScan):
    save: FileName | None = Field(default=None, description="The backup that regions are taken from; else the newest.")
