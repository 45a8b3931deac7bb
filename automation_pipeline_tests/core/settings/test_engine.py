"""The settings of the executor, and the error message for each invalid value."""

from collections.abc import Iterator

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings import load_settings


@pytest.fixture(autouse=True)
def clear_settings_cache() -> Iterator[None]:
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@pytest.mark.parametrize(
    ("variable", "value", "read"),
    [
        ("AUTOMATION_EXECUTOR", "multiprocess", "multiprocess"),
        ("AUTOMATION_MAX_PROCESSES", "64", 64),
        ("AUTOMATION_HEARTBEAT_SECONDS", "0.5", 0.5),
        ("AUTOMATION_LOST_AFTER_SECONDS", "86400", 86_400),
        ("AUTOMATION_EXECUTOR", "celery", "celery"),
        ("AUTOMATION_EXECUTOR", "k8s", "k8s"),
        ("AUTOMATION_CELERY_BROKER_URL", "redis://broker:6379/1", "redis://broker:6379/1"),
        ("AUTOMATION_CELERY_CONCURRENCY", "4", 4),
    ],
)
def test_a_variable_is_read(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, read: object
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(load_settings(), variable.lower()) == read


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "AUTOMATION_EXECUTOR",
            "threads",
            "it should be 'in_process', 'multiprocess', 'celery' or 'k8s'",
        ),
        ("AUTOMATION_MAX_PROCESSES", "0", "it should be greater than or equal to 1"),
        ("AUTOMATION_MAX_PROCESSES", "65", "it should be less than or equal to 64"),
        ("AUTOMATION_HEARTBEAT_SECONDS", "0", "it should be greater than 0"),
        ("AUTOMATION_HEARTBEAT_SECONDS", "nan", "it should be"),
        ("AUTOMATION_HEARTBEAT_SECONDS", "601", "it should be less than or equal to 600"),
        ("AUTOMATION_LOST_AFTER_SECONDS", "-1", "it should be greater than 0"),
        ("AUTOMATION_LOST_AFTER_SECONDS", "inf", "it should be less than or equal to 86400"),
        (
            "AUTOMATION_CELERY_BROKER_URL",
            "amqp://rabbit",
            "it must start with redis://, rediss:// or unix://",
        ),
        ("AUTOMATION_CELERY_CONCURRENCY", "0", "it should be greater than or equal to 1"),
    ],
)
def test_an_invalid_value_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError, match=f"{variable} cannot be used: {sentence}"):
        load_settings()


@pytest.mark.parametrize(("heartbeat", "lost_after"), [("0.5", "4"), ("40", "120"), ("0.1", "0.3")])
def test_a_heartbeat_of_at_most_a_third_of_lost_after_is_accepted(
    monkeypatch: pytest.MonkeyPatch, heartbeat: str, lost_after: str
) -> None:
    monkeypatch.setenv("AUTOMATION_HEARTBEAT_SECONDS", heartbeat)
    monkeypatch.setenv("AUTOMATION_LOST_AFTER_SECONDS", lost_after)
    assert load_settings().automation_lost_after_seconds == float(lost_after)


@pytest.mark.parametrize(("heartbeat", "lost_after"), [("41", "120"), ("10", "29"), ("4", "4")])
def test_a_heartbeat_over_a_third_of_lost_after_is_rejected(
    monkeypatch: pytest.MonkeyPatch, heartbeat: str, lost_after: str
) -> None:
    monkeypatch.setenv("AUTOMATION_HEARTBEAT_SECONDS", heartbeat)
    monkeypatch.setenv("AUTOMATION_LOST_AFTER_SECONDS", lost_after)
    sentence = (
        "^AUTOMATION_HEARTBEAT_SECONDS must be at most a third of AUTOMATION_LOST_AFTER_SECONDS.$"
    )
    with pytest.raises(InvalidInputError, match=sentence):
        load_settings()
