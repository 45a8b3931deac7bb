"""What a type of job is: who does it, how long it may take, and what its payload holds. All of them: `job_types`."""

from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.core.access import Permission
from automation_pipeline.core.json_model import JsonModel


class Performer(StrEnum):
    """AGENT: the agent of the server's host takes it over HTTP. SERVICE: a worker of this system does it."""

    AGENT = "agent"
    SERVICE = "service"


@dataclass(frozen=True, kw_only=True)
class JobType:
    """`permission`: what whoever asks for such a job must be allowed to write, besides jobs. Of the changing jobs of a
    host one is at work at a time, of those that only read eight. An alias is another name that it may be asked for by;
    it is stored under its own."""

    name: str
    performer: Performer
    is_mutation: bool
    limit_seconds: int
    payload: type[JsonModel]
    summary: str
    permission: Permission | None = None
    aliases: tuple[str, ...] = ()
