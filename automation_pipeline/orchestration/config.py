"""The base of every run config: a misspelt field is refused instead of swallowed."""

import dagster as dg
from pydantic import ConfigDict


class StrictConfig(dg.Config):  # noqa: TID251  the one place
    model_config = ConfigDict(extra="forbid", frozen=True)
