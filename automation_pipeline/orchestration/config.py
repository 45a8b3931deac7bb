"""What definitions take from their configuration: the base of every run config, and how often sensors look."""

import dagster as dg
from pydantic import ConfigDict

from automation_pipeline.core.settings import load_settings


class StrictConfig(dg.Config):  # noqa: TID251  the one place
    """A misspelt field is refused instead of swallowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def every(seconds: int) -> int:
    """A sensor's interval, unless `AUTOMATION_SENSOR_MAX_INTERVAL_SECONDS` asks for a shorter one."""
    return min(seconds, load_settings().automation_sensor_max_interval_seconds)
