"""What the runs that hand out steps and the Celery workers that take them must know alike, from our settings alone."""

from dagster_celery.config import DEFAULT_CONFIG

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings

# A run looks for its results every second. What nobody has taken away by then is thrown away.
RESULTS_KEPT_SECONDS = 6 * 3600
CONNECT_SECONDS, ANSWER_SECONDS = 10, 30


def broker_of(settings: Settings) -> str:
    url = settings.automation_celery_broker_url or settings.redis_url
    if url is None:
        raise PermanentError(
            "AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL: with AUTOMATION_EXECUTOR=celery one of them is "
            "the Redis that carries steps to the workers."
        )
    return f"redis+socket://{url.removeprefix('unix://')}" if url.startswith("unix://") else url


def celery_settings(settings: Settings) -> dict[str, object]:
    """Celery's own names."""
    answer = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
    }
    return {
        **DEFAULT_CONFIG,
        # A message is done with when its step has ended. One whose process dies comes again at once; one whose host
        # dies comes after the visibility timeout, long after its run has been told and begun anew.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "broker_transport_options": {"visibility_timeout": settings.automation_celery_visibility_seconds, **answer},
        "result_backend_transport_options": {"visibility_timeout": settings.automation_celery_visibility_seconds},
        "result_expires": RESULTS_KEPT_SECONDS,
        "redis_socket_timeout": ANSWER_SECONDS,
        "redis_socket_connect_timeout": CONNECT_SECONDS,
        "redis_socket_keepalive": True,
        # Nobody takes a step that it cannot begin.
        "worker_prefetch_multiplier": 1,
        "worker_concurrency": settings.automation_celery_concurrency,
        # A broker that is away is waited for: by workers for ever, by runs between two looks.
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "task_publish_retry": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_redirect_stdouts": False,
    }
