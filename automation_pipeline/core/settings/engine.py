"""Which engine does the steps of a run, Celery where it is the one, and how lost work is noticed."""

from typing import Literal, Self

from pydantic import Field, model_validator

from automation_pipeline.core.settings.enrichment import EnrichmentSettings
from automation_pipeline.core.settings.types import RedisUrl


class EngineSettings(EnrichmentSettings):
    automation_executor: Literal["in_process", "multiprocess", "celery", "k8s"] = Field(
        default="in_process",
        description="How Dagster runs the steps of a run: in one process, in one process a step, on Celery workers of "
        "any hosts, or in one Kubernetes pod a step. The same for every process of an installation.",
    )
    automation_max_processes: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Steps at the same time unless the executor is `in_process`: processes, pods, or what all Celery "
        "workers can do together. Batches are cut accordingly.",
    )
    automation_celery_broker_url: RedisUrl | None = Field(
        default=None,
        description="The Redis that carries steps to Celery workers and their results back; without it `REDIS_URL`. "
        "One database of it an installation.",
    )
    automation_celery_concurrency: int = Field(
        default=2, ge=1, le=64, description="Steps at the same time in one Celery worker that is not told otherwise."
    )
    automation_heartbeat_seconds: float = Field(
        default=5, gt=0, le=600, description="How often a working run sends its heartbeat; see the next one."
    )
    automation_lost_after_seconds: float = Field(
        default=25,
        gt=0,
        le=86_400,
        description="A run without a heartbeat for this long, three heartbeats or more, is lost: the next attempt is "
        "requested, or the run is closed after three attempts in a row without progress.",
    )

    automation_sensor_max_interval_seconds: int = Field(
        default=3600,
        ge=1,
        le=3600,
        description="No sensor of Dagster waits longer than this between two ticks. The intervals of the sensors are 5 "
        "to 60 seconds, and Dagster looks every 5 seconds which of them is due.",
    )

    @model_validator(mode="after")
    def _lost_after_several_heartbeats(self) -> Self:
        if 3 * self.automation_heartbeat_seconds > self.automation_lost_after_seconds + 1e-9:
            raise ValueError("AUTOMATION_HEARTBEAT_SECONDS must be at most a third of AUTOMATION_LOST_AFTER_SECONDS")
        return self
