"""Checks docker/kubernetes/ without a cluster: the values for Dagster's chart, and the other
manifests."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from dagster._config import Field, Shape, process_config
from dagster._core.instance.config import dagster_instance_config_schema

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.e2e.composed import DOCKER
from automation_pipeline_tests.e2e.system import REPOSITORY
from automation_pipeline_tests.test_containers import settings

VALUES: Mapping[str, Any] = yaml.safe_load((DOCKER / "kubernetes/values.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DOCKER / "kubernetes/automation.yaml").read_text())
)
PROJECT: Mapping[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
LAUNCHER = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
DEPLOYMENT = VALUES["dagster-user-deployments"]["deployments"][0]

# The used part of the schema of chart 1.13.27. Most of its objects allow
# no other fields.
POD = {"image", "podSecurityContext", "securityContext", "resources", "volumes", "volumeMounts"}
CHART: Mapping[str, set[str]] = {
    "global": {"postgresqlSecretName", "dagsterHome"},
    "telemetry": {"enabled"},
    "postgresql": {
        *(
            "enabled",
            "postgresqlHost",
            "postgresqlUsername",
            "postgresqlDatabase",
            "postgresqlParams",
        ),
        "postgresqlScheme",
    },
    "rabbitmq": {"enabled"},
    "redis": {"enabled", "internal"},
    "dagsterWebserver": {*POD, "replicaCount"},
    "dagsterDaemon": {
        *POD,
        *(
            "enabled",
            "heartbeatTolerance",
            "runCoordinator",
            "runMonitoring",
            "runRetries",
            "sensors",
            "schedules",
        ),
    },
    "concurrency": {"enabled", "pools", "runs"},
    "retention": {"enabled", "sensor", "schedule"},
    "dagster-user-deployments": {"enabled", "enableSubchart", "deployments"},
    "runLauncher": {"type", "config"},
    "migrate": {"enabled"},
}
PLAIN = {"generatePostgresqlPasswordSecret", "generateCeleryConfigSecret"}
OF_DEPLOYMENT = {
    *POD,
    *(
        "name",
        "codeServerArgs",
        "port",
        "includeConfigInLaunchedRuns",
        "env",
        "envSecrets",
        "readinessProbe",
    ),
}
OF_LAUNCHER = {
    "imagePullPolicy",
    "envSecrets",
    "failPodOnRunFailure",
    "securityContext",
    "resources",
    "runK8sConfig",
}
OF_QUEUE = {"dequeueIntervalSeconds", "dequeueUseThreads", "dequeueNumWorkers"}


def snake_case(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): snake_case(item)
            for key, item in value.items()
        }
    return value


def without_switch(value: Mapping[str, Any]) -> dict[str, Any]:
    return snake_case({key: item for key, item in value.items() if key != "enabled"})


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield f"{path}.{key}", item
        yield from leaves(item, f"{path}.{key}")


def test_every_configured_key_exists_in_the_chart() -> None:
    assert VALUES.keys() == CHART.keys() | PLAIN
    assert {
        name: unknown for name, known in CHART.items() if (unknown := VALUES[name].keys() - known)
    } == {}
    assert DEPLOYMENT.keys() <= OF_DEPLOYMENT
    assert LAUNCHER.keys() <= OF_LAUNCHER
    assert (
        VALUES["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"].keys()
        <= OF_QUEUE
    )
    assert LAUNCHER["runK8sConfig"].keys() <= {"containerConfig", "podSpecConfig", "jobSpecConfig"}


def test_dagster_accepts_the_configuration_of_the_chart_which_matches_compose() -> None:
    daemon = VALUES["dagsterDaemon"]
    queue = snake_case(daemon["runCoordinator"]["config"]["queuedRunCoordinator"])
    written = {
        "telemetry": VALUES["telemetry"],
        "concurrency": without_switch(VALUES["concurrency"]),
        "run_coordinator": {
            "module": "dagster._core.run_coordinator.queued_run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": queue,
        },
        "run_monitoring": snake_case(daemon["runMonitoring"]),
        "run_retries": snake_case(daemon["runRetries"]),
        "sensors": snake_case(daemon["sensors"]),
        "schedules": snake_case(daemon["schedules"]),
        "retention": without_switch(VALUES["retention"]),
    }
    taken = process_config(
        Shape(
            {
                key: Field(field) if not isinstance(field, Field) else field
                for key, field in dagster_instance_config_schema().items()
            }
        ),
        written,
    )
    assert taken.success, taken.errors

    composed = yaml.safe_load((DOCKER / "dagster.yaml").read_text())
    for same in ("telemetry", "concurrency", "run_retries", "sensors", "schedules"):
        assert written[same] == composed[same], same
    # A pod takes longer to start than a process.
    slower = {"start_timeout_seconds": 300, "max_resume_run_attempts": 0}
    assert written["run_monitoring"] == {**composed["run_monitoring"], **slower}
    assert queue["dequeue_interval_seconds"] == composed["run_queue"]["dequeue_interval_seconds"]


def test_the_launcher_accepts_its_config() -> None:
    dagster_k8s = pytest.importorskip("dagster_k8s")
    named = {
        **snake_case(LAUNCHER),
        "env_secrets": [secret["name"] for secret in LAUNCHER["envSecrets"]],
    }
    chart = {
        "instance_config_map": "dagster-instance",
        "postgres_password_secret": "automation-database",
    }
    taken = process_config(Shape(dagster_k8s.K8sRunLauncher.config_type()), {**named, **chart})
    assert taken.success, taken.errors


def test_the_chart_has_one_daemon_and_no_database() -> None:
    assert "replicaCount" not in VALUES["dagsterDaemon"]  # the chart has one, and no key for more
    assert VALUES["dagsterDaemon"]["enabled"]
    assert not any(VALUES[name]["enabled"] for name in ("postgresql", "redis", "rabbitmq"))
    assert VALUES["dagsterDaemon"]["runMonitoring"]["freeSlotsAfterRunEndSeconds"] > 0


def test_every_image_has_this_version() -> None:
    charted = [item for path, item in leaves(VALUES) if path.endswith(".image")]
    ours = {
        "repository": "automation-pipeline",
        "tag": PROJECT["version"],
        "pullPolicy": "IfNotPresent",
    }
    assert charted == [ours] * 3
    named = {item for path, item in leaves(MANIFESTS) if path.endswith(".image")}
    assert named == {f"automation-pipeline:{PROJECT['version']}"}
    assert (
        f"automation-pipeline:${{AUTOMATION_TAG:-{PROJECT['version']}}}"
        in (DOCKER / "compose.yaml").read_text()
    )


def test_secrets_are_references() -> None:
    assert [manifest["kind"] for manifest in MANIFESTS].count("Secret") == 0
    secret = re.compile(r"password|token|api_?key|secret", re.IGNORECASE)
    found = {
        path for path, item in [*leaves(VALUES), *leaves(MANIFESTS)] if secret.search(path) and item
    }
    allowed = re.compile(
        r"\.(envSecrets(\.\d+(\.name)?)?|postgresqlSecretName|secretRef(\.name)?)$"
    )
    assert {path for path in found if not allowed.search(path)} == set()
    assert not any("@" in item for _, item in leaves(VALUES) if isinstance(item, str))


def test_every_variable_is_a_setting_of_the_system_or_of_dagster() -> None:
    wanted = [item for path, item in [*leaves(VALUES), *leaves(MANIFESTS)] if path.endswith(".env")]
    named = {variable["name"] for variables in wanted for variable in variables}
    assert named - settings() == {"DAGSTER_GRPC_SHUTDOWN_GRACE_PERIOD"}
    assert {variable["name"]: variable["value"] for variable in DEPLOYMENT["env"]}[
        "AUTOMATION_EXECUTOR"
    ] == "k8s"


@every_case("path", ["podSecurityContext", "securityContext"])
def test_no_container_is_root_or_writes_to_undeclared_places(path: str) -> None:
    wanted = {
        "podSecurityContext": {"runAsNonRoot": True, "runAsUser": 10001},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }[path]
    charted = [VALUES["dagsterWebserver"], VALUES["dagsterDaemon"], DEPLOYMENT]
    pods = [
        manifest["spec"]["template"]["spec"]
        for manifest in MANIFESTS
        if "template" in manifest.get("spec", {})
    ]
    of_pods = [
        pod["securityContext"]
        if path == "podSecurityContext"
        else pod["containers"][0]["securityContext"]
        for pod in pods
    ]
    of_runs = (
        LAUNCHER["runK8sConfig"]["podSpecConfig"]["securityContext"]
        if path == "podSecurityContext"
        else LAUNCHER[path]
    )
    for context in [*(service[path] for service in charted), *of_pods, of_runs]:
        assert context.items() >= wanted.items()
