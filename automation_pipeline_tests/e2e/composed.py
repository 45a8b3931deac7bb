"""Reads docker/compose.yaml as a container engine does: the command, environment and health check
of each service."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from automation_pipeline_tests.e2e.system import REPOSITORY

DOCKER = REPOSITORY / "docker"
COMPOSE = DOCKER / "compose.yaml"
_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>\w+)|\{(?P<name>\w+)(?:(?P<sign>:[-?])(?P<rest>[^}]*))?\})"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class NotSetError(Exception):
    """A required variable is not set."""


@dataclass(frozen=True)
class Service:
    name: str
    document: Mapping[str, Any]  # Any: whatever YAML holds

    @property
    def command(self) -> Sequence[str]:
        return self.document["command"]

    @property
    def environment(self) -> Mapping[str, str]:
        return self.document.get("environment", {})

    @property
    def is_own_image(self) -> bool:
        return "build" in self.document

    @property
    def ends_by_itself(self) -> bool:
        return self.document["restart"] == "on-failure"

    @property
    def health(self) -> Sequence[str] | None:
        kind, *words = self.document.get("healthcheck", {}).get("test", ["NONE"])
        return {"CMD": words, "CMD-SHELL": ["sh", "-c", *words], "NONE": None}[kind]

    @property
    def grace_seconds(self) -> float:
        return seconds(self.document["stop_grace_period"])

    @property
    def replicas(self) -> int:
        return int(self.document["deploy"].get("replicas", 1))

    @property
    def mounts(self) -> Mapping[str, str | None]:
        """The writable folders without the first slash, each with its volume, or None for a folder
        in memory."""
        volumes = [
            volume.split(":")
            for volume in self.document.get("volumes", ())
            if not volume.startswith(".")
        ]
        memory = [mount.split(":")[0] for mount in self.document["tmpfs"]]
        return {place.lstrip("/"): name for name, place in volumes} | {
            place.lstrip("/"): None for place in memory
        }

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The services on which this one depends, and their required conditions."""
        return {
            name: wanted["condition"]
            for name, wanted in self.document.get("depends_on", {}).items()
        }


def services(variables: Mapping[str, str]) -> Mapping[str, Service]:
    """The services, with the variables of .env. Services with `env_file` also have them in their
    environment."""
    written = document(variables)["services"]
    return {
        name: Service(name, _with_env_file(service, variables)) for name, service in written.items()
    }


def document(variables: Mapping[str, str], path: Path = COMPOSE) -> Any:  # Any: whatever YAML holds
    return _filled_in(yaml.safe_load(path.read_text()), variables)


def env_file(path: Path) -> Mapping[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def seconds(length: str) -> float:
    return float(length[:-1]) * _SECONDS[length[-1]]


def variables_in(text: str) -> set[str]:
    return {
        found["name"] or found["bare"] for found in _VARIABLE.finditer(text) if not found["dollar"]
    }


def _with_env_file(service: Mapping[str, Any], variables: Mapping[str, str]) -> Mapping[str, Any]:
    if "env_file" not in service:
        return service
    return {**service, "environment": {**variables, **service["environment"]}}


def _filled_in(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, variables), value)
    if isinstance(value, Mapping):
        return {key: _filled_in(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled_in(item, variables) for item in value]
    return value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["dollar"]:
        return "$"
    name = found["name"] or found["bare"]
    value = variables.get(name, "")
    if value or not found["sign"]:
        return value
    if found["sign"] == ":?":
        raise NotSetError(f"{name}: {found['rest']}")
    return found["rest"]
