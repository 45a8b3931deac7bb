"""Composition root: creates the services from the settings. Only this module knows which adapter
implements which port.

Connections are opened on first use, and adapters that are not configured are not imported.
"""

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import uvloop

from automation_pipeline.core.background import end_tasks, tune_gc
from automation_pipeline.core.clock import Clock, SystemClock
from automation_pipeline.core.coordination import (
    CountedRateLimiter,
    FailoverPermits,
    FailoverRateLimiter,
    Permits,
    RateLimiter,
    Semaphore,
)
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.settings import Settings, load_settings
from automation_pipeline.core.webhooks import DeliveryPolicy
from automation_pipeline.storage.claims import DatabaseClaims, DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import MetricsFlusher
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter

Result = TypeVar("Result")

THREADS = 64


class WorkLoop:
    """The event loop in which a process does the work of its steps (ADR 0031: uvloop)."""

    def __init__(self, metering: MetricsFlusher) -> None:
        self._metering = metering

    @cached_property
    def _loop(self) -> asyncio.Runner:
        tune_gc()
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        # These threads mostly wait for the database or Redis, so the default of a few threads per
        # core is too low.
        runner.get_loop().set_default_executor(
            ThreadPoolExecutor(THREADS, thread_name_prefix="background")
        )
        return runner

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run the work in the caller's context: a runner otherwise keeps the context of its first
        call."""
        work_with_metrics = self.counted(work)
        try:
            return self._loop.run(work_with_metrics, context=copy_context())
        except BaseException:  # after an interrupt too, no task may stay in the loop
            end_tasks(self._loop.get_loop(), work_with_metrics)
            raise

    async def counted(self, work: Coroutine[object, object, Result]) -> Result:
        async with self._metering.in_background():
            return await work


if TYPE_CHECKING:
    from pydantic import SecretStr

    from automation_pipeline.audits.judging import Judge
    from automation_pipeline.automation.ports import (
        DeliveryServices,
        EventPublisher,
        MailSender,
        RealtimeClient,
    )
    from automation_pipeline.automation.rules.schedules import DuePolicy
    from automation_pipeline.core.launching import DagsterProbe
    from automation_pipeline.core.webhooks import WebhookSender
    from automation_pipeline.enrichment.models import Registries, RegistrySource, SourceApi
    from automation_pipeline.fiches.models.fiches import FicheSource
    from automation_pipeline.org_jobs.ports import HttpsCaller, JobRunner
    from automation_pipeline.pricing.models.shop import PricingContext, Storefront
    from automation_pipeline.transcription.models import SpeechOptions, SpeechProvider


class Services:
    """Everything that use cases need, with one instance per process."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.meter = Meter()
        self._crm_by_key: dict[str, FicheSource] = {}

    @cached_property
    def database(self) -> Database:
        return Database(self.settings.database_url)

    @cached_property
    def claims(self) -> DatabaseClaims:
        """Claims are always in the database, so that work continues without Redis."""
        return DatabaseClaims(self.database)

    @cached_property
    def permits(self) -> Permits:
        in_database = DatabasePermits(self.database)
        if self.settings.redis_url is None:
            return in_database
        from automation_pipeline.clients.redis import RedisPermits, connect  # noqa: PLC0415  only where Redis is used

        return FailoverPermits(RedisPermits(connect(self.settings.redis_url)), in_database)

    @cached_property
    def rate_limiter(self) -> RateLimiter:
        if self.settings.redis_url is None:
            return DatabaseRateLimiter(self.database)
        from automation_pipeline.clients.redis import RedisRateLimiter, connect  # noqa: PLC0415  only with Redis

        return RedisRateLimiter(connect(self.settings.redis_url))

    @cached_property
    def sales_list_semaphore(self) -> Semaphore:
        """Bounds the sales lists that all processes request from the CRM at the same time."""
        limit = self.settings.fiche_sales_search_concurrency
        return Semaphore(
            self.permits, "crm-sales-list", limit, owner=f"{socket.gethostname()}:{os.getpid()}"
        )

    @cached_property
    def crm(self) -> "FicheSource":
        """Raises PermanentError if a setting is missing; the message names it."""
        from automation_pipeline.clients.factories import open_crm  # noqa: PLC0415  only where it is used

        return open_crm(self.settings, self.clock.now, self.meter)

    def crm_with(self, key: "SecretStr | None") -> "FicheSource":
        """The CRM with the key of a schedule, or with `FICHE_API_AUTH_TOKEN` without a key."""
        if key is None:
            return self.crm
        token = key.get_secret_value()
        if token not in self._crm_by_key:
            from automation_pipeline.clients.factories import open_crm  # noqa: PLC0415  only where it is used

            settings = self.settings.model_copy(update={"fiche_api_auth_token": key})
            self._crm_by_key[token] = open_crm(settings, self.clock.now, self.meter)
        return self._crm_by_key[token]

    @cached_property
    def speech(self) -> "SpeechProvider":
        """Speech-to-text under the rate limit that all processes share."""
        from automation_pipeline.clients.factories import open_speech  # noqa: PLC0415  httpx only where it is used
        from automation_pipeline.transcription.models import SpeechProvider  # noqa: PLC0415  only where it is used

        speech = open_speech(self.settings, self.clock.now, self.meter)
        return SpeechProvider(speech, self._shared_limiter, self.speech_options)

    @cached_property
    def speech_options(self) -> "SpeechOptions":
        from automation_pipeline.clients.factories import speech_options  # noqa: PLC0415  only where it is used

        return speech_options(self.settings)

    @cached_property
    def judge(self) -> "Judge":
        """The language model for audits, under the rate limits that all processes share."""
        from automation_pipeline.audits.judging import Judge  # noqa: PLC0415  only where it is used
        from automation_pipeline.clients.factories import audit_options, open_model  # noqa: PLC0415  only where it is used

        settings, model = self.settings, open_model(self.settings, self.clock.now, self.meter)
        owner = f"{socket.gethostname()}:{os.getpid()}"
        semaphore = Semaphore(self.permits, "language-model", settings.llm_max_concurrency, owner)
        return Judge(model, self._shared_limiter, semaphore, self.claims, audit_options(settings))

    @cached_property
    def storefront(self) -> "Storefront":
        """The shop whose prices change. Raises PermanentError if a setting is missing; the message names
        it."""
        from automation_pipeline.clients.factories import open_storefront  # noqa: PLC0415  only where it is used

        return open_storefront(self.settings, self.clock.now, self.meter)

    @property
    def pricing_context(self) -> "PricingContext":
        from automation_pipeline.pricing.models.shop import PricingContext  # noqa: PLC0415  only where it is used

        return PricingContext(self.storefront, self.database, self.clock)

    @cached_property
    def registries(self) -> "Registries":
        """The configured registries. Raises PermanentError if a configuration is incomplete."""
        from automation_pipeline.clients.factories import open_registries  # noqa: PLC0415  only where it is used
        from automation_pipeline.enrichment.models import SharedLogin, SourceApi  # noqa: PLC0415  only where it is used
        from automation_pipeline.enrichment.sources import DatabaseLoginTokens  # noqa: PLC0415  only where it is used

        login = SharedLogin(
            DatabaseLoginTokens(self.database, self.clock, SourceApi.INPI), self.claims
        )
        return open_registries(
            self.settings, self.clock.now, self.meter, self._shared_limiter, login
        )

    def registry(self, api: "SourceApi") -> "RegistrySource | None":
        """A new client of one registry with its own login; None if it is not configured."""
        from automation_pipeline.clients.factories import open_source  # noqa: PLC0415  only where it is used

        return open_source(api, self.settings, self.clock.now, self.meter, self._shared_limiter)

    @cached_property
    def job_runners(self) -> "Mapping[str, JobRunner]":
        """The runners of the job types that this system implements."""
        from automation_pipeline.clients.service_jobs import service_job_runners  # noqa: PLC0415  only where it is used

        @cache
        def open_caller() -> "HttpsCaller":
            from automation_pipeline.clients.webhooks import HttpsCallClient, HttpsGuard  # noqa: PLC0415  httpx only where it is used

            guard = HttpsGuard(exceptions=self.settings.org_jobs_https_allowed_origins)
            return HttpsCallClient(guard, meter=self.meter)

        return service_job_runners(
            self.database,
            self.clock,
            shop=lambda: self.storefront.name,
            registries=lambda: self.registries,
            open_caller=open_caller,
        )

    def dagster_probe(self) -> "DagsterProbe":
        from automation_pipeline.clients.dagster_processes import ProbeProcess  # noqa: PLC0415  only where it is used

        return ProbeProcess()

    def local_worker(self, request_keys: Sequence[str]):  # noqa: ANN201  the type belongs to the adapter
        """Executes the jobs of filed requests in this process, without a daemon. The caller closes
        it."""
        from automation_pipeline.clients.dagster_processes import LocalWorker  # noqa: PLC0415  only where it is used

        return LocalWorker(request_keys)

    @cached_property
    def webhooks(self) -> "WebhookSender":
        from automation_pipeline.clients.webhooks import WebhookClient  # noqa: PLC0415  httpx only where it is used

        settings = self.settings
        return WebhookClient(
            now=self.clock.now,
            allowed_origins=settings.webhook_allowed_origins,
            timeout_seconds=settings.webhook_timeout_seconds,
            meter=self.meter,
        )

    @cached_property
    def mail(self) -> "MailSender | None":
        from automation_pipeline.clients.factories import open_mail  # noqa: PLC0415  only where it is used

        return open_mail(self.settings)

    @cached_property
    def realtime(self) -> "RealtimeClient | None":
        """None without Pusher. Raises PermanentError if the configuration is incomplete."""
        from automation_pipeline.clients.factories import open_realtime  # noqa: PLC0415  only where it is used

        return open_realtime(self.settings, self.clock.now, self.meter)

    @cached_property
    def publisher(self) -> "EventPublisher | None":
        from automation_pipeline.clients.factories import open_publisher  # noqa: PLC0415  only where it is used

        return open_publisher(lambda: self.realtime)

    @property
    def webhook_secret(self) -> str | None:
        secret = self.settings.webhook_secret
        return secret.get_secret_value() if secret else None

    @property
    def delivery_policy(self) -> DeliveryPolicy:
        return DeliveryPolicy(attempts=self.settings.webhook_max_attempts)

    @property
    def delivery_services(self) -> "DeliveryServices":
        """The clients that deliver messages: these services themselves. The type checker does not
        accept cached properties as those of a protocol."""
        return cast("DeliveryServices", self)

    @cached_property
    def _shared_limiter(self) -> RateLimiter:
        """During an outage of Redis, the rate limit uses the database."""
        in_database = DatabaseRateLimiter(self.database)
        limiter = (
            FailoverRateLimiter(self.rate_limiter, in_database)
            if self.settings.redis_url
            else in_database
        )
        return CountedRateLimiter(limiter, self.meter)

    @cached_property
    def metering(self) -> MetricsFlusher:
        return MetricsFlusher(self.meter, lambda: self.database)

    @cached_property
    def _work_loop(self) -> WorkLoop:
        return WorkLoop(self.metering)

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run async work to its end; an interrupt leaves no task running. The loop and the clients'
        connections live as long as the process."""
        return self._work_loop.run(work)

    def counted(self, work: Coroutine[object, object, Result]) -> Coroutine[object, object, Result]:
        """The same work for a separate loop; its metrics are written to the database."""
        return self._work_loop.counted(work)


def remote_api(url: str, token: str):  # noqa: ANN201  the type belongs to the adapter
    """The HTTP API on another machine. The caller closes it."""
    from automation_pipeline.clients.automation_api import AutomationApi  # noqa: PLC0415  httpx only where it is used

    return AutomationApi(url, token)


def due_rules(settings: Settings) -> "DuePolicy":
    from automation_pipeline.automation.rules.schedules import DuePolicy  # noqa: PLC0415  only for the sensor

    waits_ms = (
        settings.automation_fiche_details_max_wait_ms
        + settings.automation_transcription_max_wait_ms
        + settings.automation_audit_max_wait_ms
        + settings.automation_scheduler_stale_grace_ms
    )
    return DuePolicy(
        window=timedelta(minutes=settings.automation_scheduler_window_minutes),
        stale_after=timedelta(milliseconds=waits_ms),
        lost_after_seconds=settings.automation_lost_after_seconds,
    )


@cache
def services() -> Services:
    """The services of this process, configured by its environment."""
    return Services(load_settings())
