"""What the settings select: rate limits and permits on Redis if it is configured, else in the
database."""

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from automation_pipeline.automation.rules.schedules import DuePolicy
from automation_pipeline.bootstrap import Services, due_rules
from automation_pipeline.clients.redis import RedisRateLimiter
from automation_pipeline.clients.webhooks import HttpsCallClient
from automation_pipeline.core.coordination import FailoverPermits, FailoverRateLimiter
from automation_pipeline.core.settings import Settings
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter


def services(folder: Path, **settings: str) -> Services:
    return Services(Settings(database_url=f"sqlite:///{folder / 'test.db'}", **settings))


def test_without_redis_the_database_bounds_calls(tmp_path: Path) -> None:
    services_of_settings = services(tmp_path)
    assert isinstance(services_of_settings.rate_limiter, DatabaseRateLimiter)
    assert isinstance(services_of_settings.permits, DatabasePermits)
    assert isinstance(services_of_settings._shared_limiter.limiter, DatabaseRateLimiter)


def test_the_database_takes_over_during_an_outage_of_redis(tmp_path: Path) -> None:
    services_of_settings = services(tmp_path, redis_url="redis://127.0.0.1:9/0")
    assert isinstance(services_of_settings.rate_limiter, RedisRateLimiter)
    assert isinstance(services_of_settings.permits, FailoverPermits)
    assert isinstance(services_of_settings._shared_limiter.limiter, FailoverRateLimiter)


def test_schedules_with_the_same_key_share_one_crm_client(tmp_path: Path) -> None:
    services_of_settings = services(
        tmp_path, fiche_api_base_url="http://127.0.0.1:9", fiche_api_auth_token="own"
    )
    first, again = (
        services_of_settings.crm_with(SecretStr("one")),
        services_of_settings.crm_with(SecretStr("one")),
    )
    assert first is again
    assert first is not services_of_settings.crm_with(SecretStr("other"))
    assert services_of_settings.crm_with(None) is services_of_settings.crm


def test_at_most_the_configured_number_of_sales_lists_is_requested_at_once(tmp_path: Path) -> None:
    found = services(tmp_path, fiche_sales_search_concurrency="4")
    semaphore = found.sales_list_semaphore
    assert (semaphore.name, semaphore.limit) == ("crm-sales-list", 4)
    assert semaphore.owner == f"{socket.gethostname()}:{os.getpid()}"


def test_the_delivery_of_messages_uses_the_configured_secret_and_attempts(tmp_path: Path) -> None:
    found = services(tmp_path, webhook_secret="s3cret", webhook_max_attempts="4")
    assert (found.webhook_secret, found.delivery_policy.attempts) == ("s3cret", 4)
    assert services(tmp_path).webhook_secret is None
    assert found.delivery_services is found


def test_a_run_is_stale_after_the_sum_of_all_waits() -> None:
    settings = Settings(
        automation_fiche_details_max_wait_ms=60_001,
        automation_transcription_max_wait_ms=60_020,
        automation_audit_max_wait_ms=60_300,
        automation_scheduler_stale_grace_ms=64_000,
        automation_scheduler_window_minutes=7,
        automation_lost_after_seconds=33,
    )
    assert due_rules(settings) == DuePolicy(
        window=timedelta(minutes=7),
        stale_after=timedelta(milliseconds=244_321),
        lost_after_seconds=33,
    )


def test_the_https_calls_of_jobs_may_reach_only_the_allowed_origins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(
        "automation_pipeline.clients.service_jobs.service_job_runners",
        lambda *_services, **more: given.update(more) or {"a type": "a runner"},
    )
    found = services(tmp_path, org_jobs_https_allowed_origins="http://127.0.0.1:9")
    assert found.job_runners == {"a type": "a runner"}
    caller = given["open_caller"]()
    assert isinstance(caller, HttpsCallClient)
    assert given["open_caller"]() is caller


def test_a_local_worker_executes_the_given_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automation_pipeline.clients.dagster_processes.LocalWorker", list)
    assert services(tmp_path).local_worker(["key-1", "key-2"]) == ["key-1", "key-2"]
