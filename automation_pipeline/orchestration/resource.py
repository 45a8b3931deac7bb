"""The services as a Dagster resource. It has no fields: settings and secrets stay out of run config."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import dagster as dg

from automation_pipeline.core.correlation import correlated
from automation_pipeline.orchestration.correlation import correlation_of

if TYPE_CHECKING:
    from automation_pipeline.bootstrap import Services


class ServicesResource(dg.ConfigurableResource):
    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Self]:
        """Every process of a run, whatever its executor, makes the resource before its steps: all that they do is
        correlated. Sensors have no run."""
        if context.run is None:
            yield self
            return
        with correlated(correlation_of(context.run)):
            yield self

    def get(self) -> "Services":
        from automation_pipeline.bootstrap import services  # noqa: PLC0415  with what needs it, and not before

        return services()
