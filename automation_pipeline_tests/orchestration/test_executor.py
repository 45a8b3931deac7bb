"""The settings select the executor; a missing dependency is reported in one sentence."""

import subprocess
import sys

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.executor import executor_of, processes_of


def test_the_celery_executor_uses_the_configured_number_of_processes() -> None:
    settings = Settings(
        automation_executor="celery", redis_url="redis://a/1", automation_max_processes=6
    )
    assert (executor_of(settings).name, processes_of(settings)) == ("celery", 6)


@pytest.mark.parametrize(
    ("executor", "sentence"),
    [
        ("celery", "AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL"),
        (
            "k8s",
            "AUTOMATION_EXECUTOR=k8s needs the package dagster-k8s: install this one with its extra `kubernetes`.",
        ),
    ],
)
def test_a_missing_executor_dependency_is_named(
    executor: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_k8s", None)
    with pytest.raises(PermanentError, match=sentence):
        executor_of(Settings(automation_executor=executor))  # type: ignore[arg-type]


def test_celery_is_not_imported_unless_it_is_used() -> None:
    heavy = "{'celery', 'kombu'}"
    script = f"import sys; from automation_pipeline.definitions import defs; defs(); print({heavy} & set(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip().splitlines()[-1] == "set()"
