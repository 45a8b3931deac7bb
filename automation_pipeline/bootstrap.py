"""Composition root: settings in, services out. The only module that knows which adapter serves which port.

Nothing is opened before it is asked for, and adapters that are not configured are not even imported; nor is a room
whose work a process does not do.
"""

import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from automation_pipeline.automation.domain.due import DueRules
from automation_pipeline.core.clock import Clock, SystemClock
from automation_pipeline.core.coordination import Permits, RateLimiter
from automation_pipeline.core.counted_limiter import CountedRateLimiter
from automation_pipeline.core.delivery import Patience
from automation_pipeline.core.failover import FailoverPermits, FailoverRateLimiter
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.core.settings import Settings, load_settings
from automation_pipeline.storage.claims import DatabaseClaims, DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.metering import Metering
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter
from automation_pipeline.storage.work_loop import WorkLoop

if TYPE_CHECKING:
    from pydantic import SecretStr

    from automation_pipeline.audits.ports import Judge
    from automation_pipeline.automation.ports import MailSender, PostOffice, Realtime
    from automation_pipeline.core.launching import DagsterProbe
    from automation_pipeline.core.webhooks import WebhookSender
    from automation_pipeline.enrichment.domain.vocabulary import SourceApi
    from automation_pipeline.enrichment.ports import Registries, Source
    from automation_pipeline.fiches.ports import FicheSource
    from automation_pipeline.org_jobs.ports import JobDoer
    from automation_pipeline.pricing.ports import Storefront
    from automation_pipeline.transcription.ports import Provider

Result = TypeVar("Result")


class Services:
    """Everything that stages need, one of each a process."""

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
        """In the database on every profile, so that no work stops with Redis."""
        return DatabaseClaims(self.database)

    @cached_property
    def permits(self) -> Permits:
        in_database = DatabasePermits(self.database)
        if self.settings.redis_url is None:
            return in_database
        from automation_pipeline.locks.redis_connection import connect  # noqa: PLC0415  only where Redis is used
        from automation_pipeline.locks.redis_permits import RedisPermits  # noqa: PLC0415  only where Redis is used

        return FailoverPermits(RedisPermits(connect(self.settings.redis_url)), in_database)

    @cached_property
    def rate_limiter(self) -> RateLimiter:
        if self.settings.redis_url is None:
            return DatabaseRateLimiter(self.database)
        from automation_pipeline.locks.redis_connection import connect  # noqa: PLC0415  only where Redis is used
        from automation_pipeline.locks.redis_rate_limits import RedisRateLimiter  # noqa: PLC0415  only with Redis

        return RedisRateLimiter(connect(self.settings.redis_url))

    @cached_property
    def sales_list_semaphore(self) -> Semaphore:
        """Bounds the sales lists that all processes ask the CRM for at the same time."""
        limit = self.settings.fiche_sales_search_concurrency
        return Semaphore(self.permits, "crm-sales-list", limit, owner=f"{socket.gethostname()}:{os.getpid()}")

    @cached_property
    def crm(self) -> "FicheSource":
        """PermanentError names the setting that is missing."""
        from automation_pipeline.clients.opening import open_crm  # noqa: PLC0415  only where it is asked for

        return open_crm(self.settings, self.clock.now, self.meter)

    def crm_with(self, key: "SecretStr | None") -> "FicheSource":
        """The CRM as a schedule with a key of its own calls it; without one, with `FICHE_API_AUTH_TOKEN`."""
        if key is None:
            return self.crm
        token = key.get_secret_value()
        if token not in self._crm_by_key:
            from automation_pipeline.clients.opening import open_crm  # noqa: PLC0415  only where it is asked for

            settings = self.settings.model_copy(update={"fiche_api_auth_token": key})
            self._crm_by_key[token] = open_crm(settings, self.clock.now, self.meter)
        return self._crm_by_key[token]

    @cached_property
    def speech(self) -> "Provider":
        """Speech-to-text under the cap that all processes share."""
        from automation_pipeline.clients.opening import open_speech, speech_knobs  # noqa: PLC0415  httpx only where it is used
        from automation_pipeline.transcription.ports import Provider  # noqa: PLC0415  the same

        speech = open_speech(self.settings, self.clock.now, self.meter)
        return Provider(speech, self._shared_limiter, speech_knobs(self.settings))

    @cached_property
    def judge(self) -> "Judge":
        """The language model of the audits, under the caps that all processes share."""
        from automation_pipeline.audits.ports import Judge  # noqa: PLC0415  only where it is asked for
        from automation_pipeline.clients.opening import judge_knobs, open_model  # noqa: PLC0415  only where it is asked for

        settings, model = self.settings, open_model(self.settings, self.clock.now, self.meter)
        owner = f"{socket.gethostname()}:{os.getpid()}"
        semaphore = Semaphore(self.permits, "language-model", settings.llm_max_concurrency, owner)
        return Judge(model, self._shared_limiter, semaphore, self.claims, judge_knobs(settings))

    @cached_property
    def storefront(self) -> "Storefront":
        """The shop whose prices are changed. PermanentError names the setting that is missing."""
        from automation_pipeline.clients.opening import open_storefront  # noqa: PLC0415  only where it is asked for

        return open_storefront(self.settings, self.clock.now, self.meter)

    @cached_property
    def registries(self) -> "Registries":
        """Those that are configured. PermanentError: one is, but not wholly."""
        from automation_pipeline.clients.registries_opening import open_registries  # noqa: PLC0415  where asked for
        from automation_pipeline.enrichment.domain.vocabulary import SourceApi  # noqa: PLC0415  the same
        from automation_pipeline.enrichment.ports import SharedLogin  # noqa: PLC0415  the same
        from automation_pipeline.enrichment.store.login_tokens import DatabaseTokens  # noqa: PLC0415  the same

        login = SharedLogin(DatabaseTokens(self.database, self.clock, SourceApi.INPI), self.claims)
        return open_registries(self.settings, self.clock.now, self.meter, self._shared_limiter, login)

    def registry(self, api: "SourceApi") -> "Source | None":
        """One of them apart from the others, opened anew, with a login of its own; None where it is not configured."""
        from automation_pipeline.clients.registries_opening import open_source  # noqa: PLC0415  where asked for

        return open_source(api, self.settings, self.clock.now, self.meter, self._shared_limiter)

    @cached_property
    def job_doers(self) -> "Mapping[str, JobDoer]":
        """Who does organisations' jobs of this system's own types."""
        from automation_pipeline.clients.opening import opens_https_caller  # noqa: PLC0415  only where it is asked for
        from automation_pipeline.job_types.opening import open_job_doers  # noqa: PLC0415  the same

        caller = opens_https_caller(self.settings, self.meter)
        return open_job_doers(
            self.database,
            self.clock,
            shop=lambda: self.storefront.name,
            registries=lambda: self.registries,
            open_caller=caller,
        )

    def dagster_probe(self) -> "DagsterProbe":
        from automation_pipeline.clients.dagster_processes import ProbeProcess  # noqa: PLC0415  only where it is used

        return ProbeProcess()

    def local_worker(self, request_keys: Sequence[str]):  # noqa: ANN201  the type of an adapter stays with it
        """Executes the jobs of filed requests here, without a daemon. The caller closes it."""
        from automation_pipeline.clients.dagster_processes import LocalWorker  # noqa: PLC0415  only where it is used

        return LocalWorker(request_keys)

    @cached_property
    def webhooks(self) -> "WebhookSender":
        from automation_pipeline.clients.webhook import WebhookClient  # noqa: PLC0415  httpx only where it is used

        settings = self.settings
        return WebhookClient(
            now=self.clock.now,
            allowed_origins=settings.webhook_allowed_origins,
            timeout_seconds=settings.webhook_timeout_seconds,
            meter=self.meter,
        )

    @cached_property
    def mail(self) -> "MailSender | None":
        from automation_pipeline.mail.opening import open_mail  # noqa: PLC0415  only where it is asked for

        return open_mail(self.settings)

    @cached_property
    def realtime(self) -> "Realtime | None":
        """None where Pusher is not configured. PermanentError: it is, but not wholly."""
        from automation_pipeline.realtime.opening import open_realtime  # noqa: PLC0415  only where it is asked for

        return open_realtime(self.settings, self.clock.now, self.meter)

    @cached_property
    def post_office(self) -> "PostOffice":
        """Who carries messages about runs."""
        from automation_pipeline.automation.ports import PostOffice  # noqa: PLC0415  only where it is asked for
        from automation_pipeline.realtime.opening import open_publisher  # noqa: PLC0415  only where it is asked for

        secret = self.settings.webhook_secret
        return PostOffice(
            webhooks=self.webhooks,
            mail=self.mail,
            publisher=open_publisher(lambda: self.realtime),
            secret=secret.get_secret_value() if secret else None,
            patience=Patience(attempts=self.settings.webhook_max_attempts),
        )

    @cached_property
    def _shared_limiter(self) -> RateLimiter:
        """A provider's cap outlives an outage of Redis: the database takes over."""
        in_database = DatabaseRateLimiter(self.database)
        limiter = FailoverRateLimiter(self.rate_limiter, in_database) if self.settings.redis_url else in_database
        return CountedRateLimiter(limiter, self.meter)

    @cached_property
    def metering(self) -> Metering:
        return Metering(self.meter, lambda: self.database)

    @cached_property
    def _work_loop(self) -> WorkLoop:
        return WorkLoop(self.metering)

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run async work to its end; interrupted, it leaves nothing running behind. The loop lives as long as the
        process, and so do the clients' connections."""
        return self._work_loop.run(work)

    def counted(self, work: Coroutine[object, object, Result]) -> Coroutine[object, object, Result]:
        """The same work for a loop of its own; what is counted in it reaches the database all the same."""
        return self._work_loop.counted(work)


def remote_api(url: str, token: str):  # noqa: ANN201  the type of an adapter stays with it
    """Our HTTP API on another machine. The caller closes it."""
    from automation_pipeline.clients.automation_api import AutomationApi  # noqa: PLC0415  httpx only where it is used

    return AutomationApi(url, token)


def due_rules(settings: Settings) -> DueRules:
    waits_ms = (
        settings.automation_fiche_details_max_wait_ms
        + settings.automation_transcription_max_wait_ms
        + settings.automation_audit_max_wait_ms
        + settings.automation_scheduler_stale_grace_ms
    )
    return DueRules(
        window=timedelta(minutes=settings.automation_scheduler_window_minutes),
        stale_after=timedelta(milliseconds=waits_ms),
        lost_after_seconds=settings.automation_lost_after_seconds,
    )


@cache
def services() -> Services:
    """The services of this process, as its environment says."""
    return Services(load_settings())
