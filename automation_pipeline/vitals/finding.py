"""What a check found: `ok`, `not set` or `failed`, and one sentence on it."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    NOT_SET = "not set"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """`required`: the system does not do what it is configured to do without it."""

    name: str
    state: State
    detail: str
    required: bool

    @property
    def is_trouble(self) -> bool:
        return self.required and self.state is State.FAILED
