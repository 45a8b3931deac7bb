"""What runs and workers know alike: the broker, and the promises that no step is lost or shared."""

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.celery_settings import broker_of, celery_settings
from automation_pipeline_tests.tables import every_case


@every_case(
    ("settings", "broker"),
    [
        ({"redis_url": "redis://a/1"}, "redis://a/1"),
        ({"redis_url": "redis://a/1", "automation_celery_broker_url": "redis://b/2"}, "redis://b/2"),
        ({"automation_celery_broker_url": "unix:///run/redis.sock"}, "redis+socket:///run/redis.sock"),
    ],
)
def test_the_broker_is_its_own_redis_or_the_one_there_is(settings: dict[str, str], broker: str) -> None:
    assert broker_of(Settings(**settings)) == broker


def test_without_redis_a_sentence_names_both_variables() -> None:
    with pytest.raises(PermanentError, match="AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL"):
        broker_of(Settings())


def test_a_step_is_kept_until_it_has_ended_and_taken_by_who_can_begin_it() -> None:
    said = celery_settings(Settings(automation_celery_visibility_seconds=30_000, automation_celery_concurrency=3))
    assert (said["task_acks_late"], said["task_reject_on_worker_lost"]) == (True, True)
    assert (said["worker_prefetch_multiplier"], said["worker_concurrency"]) == (1, 3)
    for options in (said["broker_transport_options"], said["result_backend_transport_options"]):
        assert options["visibility_timeout"] == 30_000  # type: ignore[index]
